from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from braidlog.replication.partition import ACKS_ALL, READ_UNCOMMITTED, Partition
from braidlog.wire.records.validation import ORIGIN_CLIENT
from support.partitions import Waiter, batch


def test_min_insync_replicas_binds_acks_all_only(partition: Partition) -> None:
    partition.update_leader_and_isr(1, 3, (1,), (1, 2))
    with pytest.raises(NotEnoughReplicasError, match=r"1 in-sync replica.*min\.insync\.replicas is 2"):
        partition.append(batch(), ACKS_ALL, 9, 1_700_000_000_000, ORIGIN_CLIENT)
    assert partition.append(batch(), 1, 9, 1_700_000_000_000, ORIGIN_CLIENT).first_offset == 0


def test_no_more_copies_are_asked_for_than_there_are_replicas(partition: Partition) -> None:
    assert partition.append(batch(), ACKS_ALL, 9, 1_700_000_000_000, ORIGIN_CLIENT).first_offset == 0


def test_readers_see_what_is_safe_and_nothing_else(partition: Partition) -> None:
    log = partition.require_log()
    partition.append(batch(), 1, 9, 1_700_000_000_000, ORIGIN_CLIENT)
    size = log.write_staged()
    assert partition.read(0, 1000, READ_UNCOMMITTED, True).slice is None
    partition.advance_high_watermark(1, size)
    read = partition.read(0, 1000, READ_UNCOMMITTED, True).slice
    assert read is not None
    assert read.size == size


@pytest.mark.parametrize(("claimed", "error"), [(2, FencedLeaderEpochError), (4, UnknownLeaderEpochError)])
def test_a_wrong_leader_epoch_is_refused(partition: Partition, claimed: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        partition.check_epoch(claimed)
    partition.check_epoch(3)
    partition.check_epoch(-1)


def test_nothing_is_written_in_a_leader_epoch_that_a_crash_would_forget(partition: Partition) -> None:
    partition.epoch_unwritten = True
    with pytest.raises(KafkaStorageError, match="free some space"):
        partition.append(batch(), 1, 9, 0, ORIGIN_CLIENT)
    assert partition.read(0, 1000, READ_UNCOMMITTED, True).slice is None
    partition.epoch_unwritten = False
    partition.append(batch(), 1, 9, 0, ORIGIN_CLIENT)


def test_who_does_not_lead_or_lost_its_disk_says_so(partition: Partition) -> None:
    log, partition.log = partition.log, None
    with pytest.raises(KafkaStorageError):
        partition.require_log()
    partition.log = log
    partition.update_leader_and_isr(2, 4, (2,), (1, 2))
    with pytest.raises(NotLeaderOrFollowerError):
        partition.require_log()


def test_a_new_role_wakes_those_who_wait(partition: Partition) -> None:
    waiter = Waiter(100)
    waiter.watch(partition)
    partition.update_leader_and_isr(2, 4, (2,), (1, 2))
    assert waiter.wakes == 1
    assert partition.readers == []
