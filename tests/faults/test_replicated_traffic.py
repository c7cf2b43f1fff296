"""What the judge of the replicated traffic excuses: records that librdkafka itself wrote under two epochs."""

from __future__ import annotations

import pytest

from braidlog.core.types import TopicPartition
from support.history_checker import Anomaly, Finding, Verdict
from support.replicated_traffic import KINDS, ConfluentWriter, Traffic

PARTITION = TopicPartition("orders", 0)
# As librdkafka 2.16 says it.
MOVES = (
    "Beginning partition drain in state Assigned for PID{Id:5011,Epoch:0} epoch bump for 2 partition(s) with "
    "in-flight requests: skipped sequence numbers"
)


def verdict(*findings: Finding) -> Verdict:
    return Verdict(0, 0, 0, 0, 0, 0, 0, 0, findings)


def traffic(kind: str, says: str) -> Traffic:
    """With a producer of librdkafka that has logged this."""
    made = Traffic("127.0.0.1:1", {"orders": KINDS[kind]})
    (writer,) = (each for each in made.writers if isinstance(each, ConfluentWriter))
    writer._logger().debug(says)
    return made


@pytest.mark.parametrize("anomaly", [Anomaly.DOUBLED, Anomaly.REORDERED])
def test_a_producer_that_moved_its_epoch_is_excused(anomaly: Anomaly) -> None:
    made = traffic("idempotent", MOVES)
    theirs = Finding(anomaly, PARTITION, "", "confluent-idempotent")
    ours = Finding(anomaly, PARTITION, "", "ours-idempotent")
    assert made._without_resent(verdict(theirs, ours)).findings == (ours,)
    assert made.resent == [theirs]


def test_nothing_else_is_excused() -> None:
    lost = Finding(Anomaly.LOST, PARTITION, "", "confluent-idempotent")
    assert traffic("idempotent", MOVES)._without_resent(verdict(lost)).findings == (lost,)
    doubled = Finding(Anomaly.DOUBLED, PARTITION, "", "confluent-idempotent")
    assert traffic("idempotent", "NEWPID")._without_resent(verdict(doubled)).findings == (doubled,)
    of_a_transaction = Finding(Anomaly.DOUBLED, PARTITION, "", "confluent-transactional")
    made = traffic("transactional", MOVES)
    assert made._without_resent(verdict(of_a_transaction)).findings == (of_a_transaction,)
