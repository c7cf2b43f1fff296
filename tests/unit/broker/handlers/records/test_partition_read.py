"""What one partition has for a fetch; `test_fetch.py` and `test_follower_fetch.py` have whole requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.handlers.records.fetch_session import FetchContext, FetchTarget
from braidlog.broker.handlers.records.partition_read import PartitionReader
from braidlog.config.log_settings import LogSettings
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from braidlog.core.slices import ByteSlice, FileSlice
from braidlog.replication.follower_session import FollowerSession
from braidlog.wire.generated.fetch import FetchRequest, PartitionData
from support.data_path import TOPIC, TOPIC_ID, DataPath, batch

EPOCH = 3


class World(DataPath):
    """Broker 1 leads in epoch 3, with a record that its follower, broker 2, does not have."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, LogSettings(message_downconversion_enable=False))
        self.partition = self.partitions[0]
        self.partition.update_leader_and_isr(1, EPOCH, (1, 2), (1, 2))
        records = batch(b"a", producer_id=-1, epoch=-1, sequence=-1, transactional=False)
        log = self.log()
        log.append_as_leader(ByteSlice(records, 0, len(records)), EPOCH, now_ms=0)
        self.partition.on_written(log.write_staged())
        self.partition.advance_high_watermark(log.log_end_offset, len(records))
        self.reader = PartitionReader(self.registry)

    def read(
        self,
        offset: int = 0,
        *,
        follower: FollowerSession | None = None,
        version: int = 17,
        epoch: int = EPOCH,
        last_epoch: int = -1,
        topic_id: bytes = TOPIC_ID,
    ) -> PartitionData:
        target = FetchTarget(TOPIC if topic_id == TOPIC_ID else "", topic_id, 0, offset, 1 << 20, epoch, last_epoch, 0)
        context = FetchContext([target], None, False, follower)
        return self.reader.read(FetchRequest(), context, target, version, 1 << 20, True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_follower_reads_what_is_not_committed_and_a_consumer_does_not(world: World) -> None:
    seen = world.read()
    assert (seen.error_code, seen.records, seen.high_watermark) == (0, b"", 0)
    follower = FollowerSession(2)
    copied = world.read(follower=follower)
    assert isinstance(copied.records, FileSlice)
    assert world.partition.context.bytes_out == copied.records.size
    # Its next fetch commits it, and the answer says so.
    told = world.read(1, follower=follower)
    assert (told.error_code, told.records, told.high_watermark) == (0, b"", 1)
    assert isinstance(world.read().records, FileSlice)
    # Only what consumers were given counts as read.
    assert world.partition.meter.fetches == 2


def test_logs_that_have_parted_are_told_where_without_records(world: World) -> None:
    follower = FollowerSession(2)
    parted = world.read(5, follower=follower, last_epoch=EPOCH)
    assert parted.diverging_epoch is not None
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (EPOCH, 1)
    assert parted.records == b""
    assert world.read(0, follower=follower, last_epoch=EPOCH + 1).error_code == OffsetOutOfRangeError.code


def test_what_goes_wrong_is_the_answer_of_the_partition(world: World) -> None:
    fenced = world.read(epoch=EPOCH - 1)
    assert fenced.error_code == FencedLeaderEpochError.code
    assert fenced.current_leader is not None
    assert (fenced.current_leader.leader_id, fenced.current_leader.leader_epoch) == (1, EPOCH)
    assert world.read(topic_id=b"\1" * 16).error_code == UnknownTopicIdError.code
    world.partition.topic_id = b"\2" * 16
    assert world.read().error_code == InconsistentTopicIdError.code
    assert world.partition.meter.failed_fetches == 2


def test_old_readers_are_refused_what_would_have_to_be_converted(world: World) -> None:
    assert world.read(follower=FollowerSession(2), version=3).error_code == UnsupportedVersionError.code
