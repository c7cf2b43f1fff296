from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    KafkaStorageError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderOrFollowerError,
    ProtocolError,
)
from braidlog.replication.partition import Partition
from braidlog.replication.pending_ack import AppendAck, CommitWait, PendingAck


class Ack(PendingAck):
    answered = 0

    def on_durable(self) -> None:
        self.answered += 1


def test_it_is_answered_once_everything_is_released(partition: Partition) -> None:
    ack = Ack()
    ack.outstanding += 2
    wait = CommitWait(partition, 3, ack)
    ack.release()
    ack.release()
    assert ack.answered == 0
    wait.finish(None)
    wait.finish(NotLeaderOrFollowerError())
    assert (ack.answered, ack.failures) == (1, {})


def test_the_first_failure_is_reported(partition: Partition) -> None:
    ack = Ack()
    ack.outstanding += 1
    ack.fail("orders", 0, KafkaStorageError("no disk"))
    CommitWait(partition, 3, ack).finish(NotLeaderOrFollowerError())
    assert [type(each) for each in ack.failures.values()] == [KafkaStorageError]


@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (None, None),
        (NotLeaderOrFollowerError, NotLeaderOrFollowerError),
        # It is committed: a coordinator must not take it back.
        (NotEnoughReplicasAfterAppendError, None),
    ],
)
def test_who_appended_one_batch_hears_what_is_certain(
    partition: Partition, failure: type[ProtocolError] | None, reported: type[ProtocolError] | None
) -> None:
    heard: list[ProtocolError | None] = []
    ack = AppendAck(heard.append)
    ack.outstanding += 2
    ack.release()
    assert heard == []
    CommitWait(partition, 3, ack).finish(None if failure is None else failure())
    assert [None if each is None else type(each) for each in heard] == [reported]
