from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.partition import ACKS_ALL, READ_UNCOMMITTED, Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from braidlog.wire.records.validation import ORIGIN_CLIENT


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    files = OsFiles()
    made = Partition("orders", 0, b"i" * 16, 1, TopicMetrics())
    log = made.log = UnifiedLog.open(
        str(tmp_path / "orders-0"),
        TopicPartition("orders", 0),
        LogSettings(min_insync_replicas=2),
        files=files,
        handles=HandlePool(files),
        clock=ManualClock(),
    )
    made.update_leader_and_isr(1, 3, (1,), (1,))
    yield made
    log.close(flush=False)


def batch() -> ByteSlice:
    data = build_batch([Record(0, 1_700_000_000_000, None, b"v")], base_offset=0)
    return ByteSlice(data, 0, len(data))


class Waiter(DelayedOperation):
    def __init__(self, missing: int) -> None:
        super().__init__(missing)
        self.wakes = 0

    def on_complete(self) -> None:
        self.wakes += 1


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


def test_a_waiter_is_woken_once_over_all_its_partitions(partition: Partition) -> None:
    other = Partition("orders", 1, b"i" * 16, 1, TopicMetrics())
    waiter = Waiter(100)
    waiter.watch(partition)
    waiter.watch(other)
    waiter.grown(60)
    assert waiter.wakes == 0
    waiter.grown(60)
    waiter.grown(60)
    assert waiter.wakes == 1
    assert partition.readers == other.readers == []


def test_a_cancelled_waiter_is_never_woken(partition: Partition) -> None:
    waiter = Waiter(1)
    waiter.watch(partition)
    waiter.cancel()
    partition.wake_readers()
    waiter.wake()
    assert waiter.wakes == 0


def test_the_registry_knows_partitions_by_name_and_id(partition: Partition) -> None:
    registry = PartitionRegistry()
    registry.add(partition)
    assert registry.get("orders", 0) is partition
    assert registry.get("orders", 1) is None
    assert registry.name_of(b"i" * 16) == "orders"
    with pytest.raises(UnknownTopicOrPartitionError):
        registry.require("orders", 1)
    registry.remove("orders", 0)
    registry.remove("orders", 0)
    assert registry.name_of(b"i" * 16) is None
    assert len(registry) == 0


def test_a_partition_that_another_broker_has_is_not_unknown(partition: Partition) -> None:
    registry = PartitionRegistry()
    registry.add(partition)
    registry.is_known_elsewhere = lambda topic, index: (topic, index) == ("orders", 1)
    registry.name_elsewhere = lambda topic_id: "bills" if topic_id == b"b" * 16 else None
    with pytest.raises(NotLeaderOrFollowerError):
        registry.require("orders", 1)
    with pytest.raises(UnknownTopicOrPartitionError):
        registry.require("orders", 2)
    assert registry.name_of(b"b" * 16) == "bills"


def test_a_role_that_ends_leaves_the_log(partition: Partition) -> None:
    waiter = Waiter(1)
    waiter.watch(partition)
    partition.stop()
    assert waiter.wakes == 1
    assert partition.log is not None
    with pytest.raises(NotLeaderOrFollowerError):
        partition.require_log()
