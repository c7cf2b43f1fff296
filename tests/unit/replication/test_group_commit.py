"""Group commit on real logs: what is written, synced and acknowledged when, and what a fault does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import InvalidRecordError, KafkaStorageError, ProtocolError
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.net.round import Round
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.replication.pending_ack import AppendAck, PendingAck
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.files import File, OsFiles, Part
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import LogAppendInfo, UnifiedLog
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from braidlog.wire.records.validation import ORIGIN_CLIENT


class Steps:
    """A loop, and executors, that take their steps when the test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.blocking: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()

    def run_in_directory(
        self, directory: str, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        self.blocking.append((work, done))

    def finish_one(self, failure: Exception | None = None) -> None:
        work, done = self.blocking.pop(0)
        if failure is None:
            work()
        done(failure)


class Ack(PendingAck):
    def __init__(self) -> None:
        super().__init__()
        self.done = False

    def on_durable(self) -> None:
        self.done = True


class World:
    def __init__(self, path: Path, settings: LogSettings, files: OsFiles | None = None) -> None:
        self.steps = Steps()
        self.clock = ManualClock()
        self.faults: list[StorageFault] = []
        self.round = Round(self.steps)
        self.committer = Committer(
            self.round, self.clock, lambda partition: "/data", self.steps.run_in_directory, self.faults.append
        )
        files = files or OsFiles()
        self.partition = Partition("orders", 0, bytes(16), 1, TopicMetrics())
        self.log = UnifiedLog.open(
            str(path / "orders-0"),
            TopicPartition("orders", 0),
            settings,
            files=files,
            handles=HandlePool(files),
            clock=self.clock,
        )
        self.partition.log = self.log
        self.partition.update_leader_and_isr(1, 0, (1,), (1,))

    def produce(self, ack: Ack | None = None) -> Ack:
        ack = ack or Ack()
        batch = build_batch([Record(0, self.clock.wall_ms(), None, b"value")], base_offset=0)
        self.append(batch, ack)
        ack.release()
        return ack

    def append(self, batch: bytes, ack: PendingAck) -> LogAppendInfo:
        records = ByteSlice(batch, 0, len(batch))
        return self.committer.append(self.partition, records, ack, 1, 9, self.clock.wall_ms(), ORIGIN_CLIENT)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, LogSettings())
    yield made
    made.log.close(flush=False)


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, LogSettings(flush_messages=1))
    yield made
    made.log.close(flush=False)


def test_nothing_is_acknowledged_or_readable_before_the_write(world: World) -> None:
    acks = [world.produce(), world.produce()]
    assert not any(ack.done for ack in acks)
    assert world.log.log_end_offset == 0
    world.steps.turn()
    assert all(ack.done for ack in acks)
    assert world.log.log_end_offset == world.log.high_watermark == 2


def test_a_waiting_reader_is_woken_by_the_write_that_completes_it(world: World) -> None:
    woken: list[int] = []

    class Waiter(DelayedOperation):
        def on_complete(self) -> None:
            woken.append(world.log.high_watermark)

    waiter = Waiter(missing=100)
    waiter.watch(world.partition)
    world.produce()
    world.steps.turn()
    assert woken == []
    world.produce()
    world.steps.turn()
    assert woken == [2]
    assert world.partition.readers == []


def test_in_fsync_mode_the_sync_comes_before_the_acknowledgement(synced: World) -> None:
    ack = synced.produce()
    synced.steps.turn()
    assert synced.log.log_end_offset == 1
    assert synced.log.high_watermark == 0, "what a power cut may take is not shown"
    assert not ack.done
    assert synced.committer.waiting == 1
    synced.steps.finish_one()
    assert ack.done
    assert synced.log.high_watermark == 1
    assert synced.log.recovery_point == 1
    assert synced.committer.waiting == 0


def test_requests_that_come_during_a_sync_share_the_next_one(synced: World) -> None:
    first = synced.produce()
    synced.steps.turn()
    later = [synced.produce() for _ in range(3)]
    synced.steps.turn()
    assert len(synced.steps.blocking) == 1
    synced.steps.finish_one()
    assert first.done
    assert not any(ack.done for ack in later)
    assert len(synced.steps.blocking) == 1
    synced.steps.finish_one()
    assert all(ack.done for ack in later)
    assert synced.steps.blocking == []


def test_a_sync_vouches_for_nothing_of_a_log_that_was_truncated_meanwhile(synced: World) -> None:
    synced.produce()
    synced.produce()
    synced.steps.turn()
    synced.partition.update_leader_and_isr(2, 1, (2, 1), (1, 2))
    synced.log.truncate_to(0)
    synced.partition.update_leader_and_isr(1, 2, (1,), (1,))
    synced.steps.finish_one()
    assert (synced.partition.vouched, synced.log.high_watermark) == (0, 0)
    synced.produce()
    synced.steps.turn()
    synced.steps.finish_one()
    assert (synced.partition.vouched, synced.log.high_watermark) == (1, 1)


def test_what_an_earlier_role_left_unsynced_is_synced_by_the_next_leader(synced: World) -> None:
    """And then readable: the next record, whose sync would cover it, may be long in coming."""
    synced.partition.context = ReplicationContext(synced.clock, sync_tail=synced.committer.sync_tail)
    synced.partition.update_leader_and_isr(2, 1, (2, 1), (1, 2))
    copied = build_batch([Record(0, synced.clock.wall_ms(), None, b"copied")], base_offset=0, leader_epoch=1)
    synced.log.append_as_follower(ByteSlice(copied, 0, len(copied)), now_ms=0)
    synced.log.write_staged()
    synced.partition.update_leader_and_isr(1, 2, (1,), (1,))
    assert (synced.partition.vouched, synced.log.high_watermark) == (0, 0)
    synced.steps.turn()
    synced.steps.finish_one()
    assert (synced.partition.vouched, synced.log.high_watermark, synced.log.recovery_point) == (1, 1, 1)
    assert synced.steps.blocking == []


def test_a_completed_segment_is_synced_behind_the_scenes(tmp_path: Path) -> None:
    world = World(tmp_path, LogSettings(segment_bytes=150))
    world.produce()
    world.steps.turn()
    world.produce()
    world.steps.turn()
    assert world.steps.blocking == [], "both fit into one segment"
    world.produce()
    world.steps.turn()
    assert world.log.recovery_point == 0
    world.steps.finish_one()
    assert world.log.recovery_point == 2
    for _ in range(2):
        world.produce()
        world.steps.turn()
    fault = StorageFault("/data", "Input/output error")
    world.steps.finish_one(fault)
    assert world.faults == [fault]
    world.log.close(flush=False)


def test_an_append_with_a_callback_is_reported_once_when_durable(world: World) -> None:
    batch = build_batch([Record(0, world.clock.wall_ms(), None, b"value")], base_offset=0)
    reported: list[ProtocolError | None] = []
    assert world.append(batch, AppendAck(reported.append)).first_offset == 0
    assert reported == []
    world.steps.turn()
    assert reported == [None]


def test_an_append_with_a_callback_that_fails_is_reported_once_as_a_storage_error(world: World) -> None:
    batch = build_batch([Record(0, world.clock.wall_ms(), None, b"value")], base_offset=0)
    reported: list[ProtocolError | None] = []
    world.append(batch, AppendAck(reported.append))
    world.partition.log = None
    world.steps.turn()
    (error,) = reported
    assert isinstance(error, KafkaStorageError)


def test_an_append_that_is_refused_stages_nothing_and_leaves_its_ack_alone(world: World) -> None:
    ack = Ack()
    with pytest.raises(InvalidRecordError):
        world.append(b"x" * 61, ack)
    world.steps.turn()
    assert (ack.outstanding, ack.done, world.log.log_end_offset, world.faults) == (1, False, 0, [])


def test_a_disk_that_fails_while_a_batch_is_staged_takes_its_directory_offline(tmp_path: Path) -> None:
    lacks: list[Exception] = []

    class Files(OsFiles):
        def open_append(self, path: str) -> File:
            if lacks:
                raise lacks[0]
            return super().open_append(path)

    world = World(tmp_path, LogSettings(segment_bytes=150), Files())
    for _ in range(2):
        world.produce()
        world.steps.turn()
    lacks.append(StorageFault("/data", "Input/output error"))
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        world.produce()
    assert world.faults == lacks
    lacks.clear()
    world.log.close(flush=False)


def test_a_failed_sync_acknowledges_nothing_and_is_reported(synced: World) -> None:
    ack = synced.produce()
    synced.steps.turn()
    fault = StorageFault("/data", "Input/output error")
    synced.steps.finish_one(fault)
    assert synced.faults == [fault]
    assert ack.done
    assert list(ack.failures) == [("orders", 0)]


def test_a_partition_that_went_away_refuses_what_was_staged(world: World) -> None:
    ack = world.produce()
    world.partition.log = None
    world.steps.turn()
    assert ack.done
    assert list(ack.failures) == [("orders", 0)]
    assert world.faults == []
    assert world.log.log_end_offset == 0


def test_a_full_disk_refuses_the_round_and_the_next_one_goes_on(world: World) -> None:
    kept = world.produce()
    world.steps.turn()
    # A limit on file sizes fails writes as a full disk does, only with another number.
    import resource
    import signal

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (world.log.size + 10, hard))
    try:
        refused = world.produce()
        world.steps.turn()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert kept.done
    assert not kept.failures
    assert list(refused.failures) == [("orders", 0)]
    assert len(world.faults) == 1
    assert world.log.log_end_offset == 1
    after = world.produce()
    world.steps.turn()
    assert not after.failures
    assert world.log.log_end_offset == 2


def test_one_failing_answer_is_not_that_of_the_others_in_its_round(world: World) -> None:
    class Failing(Ack):
        failed = False

        def on_durable(self) -> None:
            raise MemoryError

        def on_failure(self) -> None:
            self.failed = True

    failing = Failing()
    world.produce(failing)
    other = world.produce()
    world.steps.turn()
    assert failing.failed
    assert other.done
    assert other.failures == {}
    assert world.log.log_end_offset == 2


class WithoutMemory(File):
    """A file whose next write finds no memory."""

    def __init__(self, file: File, lacks: list[bool]) -> None:
        self._file = file
        self._lacks = lacks

    def writev(self, parts: Sequence[Part]) -> None:
        if self._lacks:
            raise MemoryError
        self._file.writev(parts)

    def reserve(self, size: int) -> None:
        self._file.reserve(size)

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position)

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()

    def fileno(self) -> int:
        return self._file.fileno()


def test_a_write_that_meets_a_bug_refuses_its_requests_and_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    lacks: list[bool] = []

    class Files(OsFiles):
        def open_append(self, path: str) -> File:
            return WithoutMemory(super().open_append(path), lacks)

    world = World(tmp_path, LogSettings(), Files())
    kept = world.produce()
    world.steps.turn()
    lacks.append(True)
    refused = world.produce()
    world.steps.turn()
    lacks.clear()
    after = world.produce()
    world.steps.turn()
    assert [list(ack.failures) for ack in (kept, refused, after)] == [[], [("orders", 0)], []]
    assert all(ack.done for ack in (kept, refused, after))
    assert world.faults == []
    assert world.log.log_end_offset == 2
    world.log.close(flush=False)
