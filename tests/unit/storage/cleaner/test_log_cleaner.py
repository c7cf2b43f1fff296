from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import COMPACT, DELETE, LogSettings
from braidlog.core.slices import ByteSlice
from braidlog.storage.cleaner.cleaning_request import CleanerConfig, CleaningRequest, CleaningResult
from braidlog.storage.cleaner.log_cleaner import LogCleaner
from braidlog.storage.cleaner.pass_runner import CleanerProcessDied, InlinePassRunner
from braidlog.storage.dirs.offset_checkpoint_file import CLEANER_OFFSETS
from braidlog.storage.jobs import Work, run_inline
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.settings import StorageSettings
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from braidlog.wire.records.validation import ORIGIN_COORDINATOR
from support.manager_fixture import NOW, Broker, append, content, tp

X = tp("x")
COMPACTED = LogSettings(cleanup_policy=(COMPACT,), min_cleanable_dirty_ratio=0.1, file_delete_delay_ms=1000)


class Passes(InlinePassRunner):
    """Does something else first, or instead."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.files)
        self.before: Callable[[], None] = lambda: None
        self.count = 0
        self.stops = 0
        self.rests = 0

    def run(self, request: CleaningRequest, is_stopped: Callable[[], bool]) -> CleaningResult:
        self.count += 1
        self.before()
        return super().run(request, is_stopped)

    def stop(self) -> None:
        self.stops += 1

    def on_idle(self) -> None:
        self.rests += 1


class Kit:
    def __init__(self, root: Path) -> None:
        self.broker = Broker(root)
        self.broker.topic_settings["x"] = COMPACTED
        self.broker.start()
        self.manager = self.broker.manager
        self.log = self.manager.create(X)
        self.passes = Passes(self.broker)
        self.cleaner = LogCleaner(self.manager, lambda: self.passes)

    def fill(self, *values: str) -> None:
        for value in values:
            append(self.log, ("k", value), ("other" + value, value))
        self.log.roll()

    def run(self) -> None:
        run_inline(self.cleaner.run(), self.manager.failures.fail)

    def leftovers(self) -> list[str]:
        return [path.name for path in Path(self.log.directory).iterdir() if path.suffix in (".cleaned", ".swap")]


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.manager.release()


def kept(log: UnifiedLog) -> list[int]:
    return [offset for offset, _ in content(log)]


def test_a_dirty_log_is_compacted_swapped_in_and_checkpointed(kit: Kit, tmp_path: Path) -> None:
    kit.fill("a", "b")
    kit.fill("c")
    append(kit.log, ("k", "active"))
    reader = kit.log.read(0, 10_000, 6).slice
    assert reader is not None
    before = reader.read()
    kit.run()
    assert kept(kit.log) == [1, 3, 4, 5, 6]
    assert [segment.base_offset for segment in kit.log.segments] == [0, 6]
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n1\nx 0 6\n"
    assert kit.leftovers() == []
    # Readers that hold the old file are undisturbed, and so they stay while it is removed.
    kit.broker.clock.advance(1)
    kit.broker.run(kit.manager.deletion.due())
    assert not list(Path(kit.log.directory).glob("*.deleted"))
    assert reader.read() == before
    assert (kit.cleaner.statistics.passes, kit.passes.rests) == (1, 1)


def test_the_checkpoint_is_where_the_next_pass_begins(kit: Kit, tmp_path: Path) -> None:
    kit.fill("a")
    kit.run()
    kit.manager.close()
    again = Kit(tmp_path)
    again.run()
    assert again.passes.count == 0
    again.fill("b")
    again.run()
    assert again.passes.count == 1
    assert kept(again.log) == [1, 2, 3]
    again.manager.close()


def test_a_clean_log_and_one_that_is_not_compacted_are_left_alone(kit: Kit) -> None:
    plain = kit.manager.create(tp("plain"))
    append(plain, ("k", "1"), ("k", "2"))
    plain.roll()
    kit.run()
    kit.fill("a")
    kit.run()
    kit.run()
    assert kit.passes.count == 1
    assert kept(plain) == [0, 1]


def test_the_pass_has_its_own_lane(kit: Kit) -> None:
    kit.fill("a")
    work = [item for item in kit.cleaner.run() if item is not None]
    assert [item.executor for item in work] == ["cleaner 0"]


class TwoThreads:
    """Two workers and two dirty logs; the requests that their passes got."""

    def __init__(self, root: Path) -> None:
        memory = CleanerConfig(dedupe_bytes=8 << 20, io_buffer_bytes=4096, max_io_bytes_per_second=1e9)
        settings = StorageSettings(log_cleaner_threads=2, cleaner_config=memory)
        self.broker = Broker(root, settings=settings)
        self.requests: list[CleaningRequest] = []
        self.logs: list[UnifiedLog] = []
        self.broker.start()
        for name in ("x", "y"):
            self.broker.topic_settings[name] = COMPACTED
            log = self.broker.manager.create(tp(name))
            append(log, ("k", "1"), ("k", "2"))
            log.roll()
            self.logs.append(log)
        self.cleaner = LogCleaner(self.broker.manager, self._passes)

    def _passes(self) -> Passes:
        passes = Passes(self.broker)
        run = passes.run

        def noted(request: CleaningRequest, is_stopped: Callable[[], bool]) -> CleaningResult:
            self.requests.append(request)
            return run(request, is_stopped)

        passes.run = noted  # type: ignore[method-assign]
        return passes

    def begin(self, number: int) -> tuple[Iterator[Work | None], Work]:
        """A worker's run up to its first pass, which has not begun."""
        run = self.cleaner.run(number)
        work = next(run)
        assert work is not None
        return run, work

    def finish(self, run: Iterator[Work | None], work: Work) -> None:
        run_inline(itertools.chain([work], run), self.broker.manager.failures.fail)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoThreads]:
    two = TwoThreads(tmp_path)
    yield two
    two.broker.manager.release()


def test_two_logs_are_compacted_side_by_side(two: TwoThreads, tmp_path: Path) -> None:
    first, second = two.begin(0), two.begin(1)
    assert (first[1].executor, second[1].executor) == ("cleaner 0", "cleaner 1")
    assert all(two.cleaner.is_cleaning(tp(name)) for name in ("x", "y"))
    two.finish(*second)
    two.finish(*first)
    assert [kept(log) for log in two.logs] == [[1], [1]]
    assert sorted((tmp_path / CLEANER_OFFSETS).read_text().splitlines()[2:]) == ["x 0 2", "y 0 2"]


def test_the_memory_and_the_rate_are_shared_out(two: TwoThreads) -> None:
    two.finish(*two.begin(0))
    (memory,) = {request.memory for request in two.requests}
    assert memory == CleanerConfig(dedupe_bytes=4 << 20, io_buffer_bytes=2048, max_io_bytes_per_second=5e8)


def test_a_thread_that_is_one_too_many_does_nothing(two: TwoThreads) -> None:
    two.broker.manager.apply_settings(StorageSettings(log_cleaner_threads=1))
    assert list(two.cleaner.run(1)) == []
    two.finish(*two.begin(0))
    assert [kept(log) for log in two.logs] == [[1], [1]]
    two.broker.manager.apply_settings(StorageSettings(log_cleaner_threads=0))
    assert list(two.cleaner.run(0)) == []


def test_a_change_of_settings_stops_what_is_under_way(two: TwoThreads) -> None:
    run, work = two.begin(0)
    two.cleaner.settings_changed()
    two.finish(run, work)
    assert two.cleaner.statistics.stopped == 1
    two.finish(*two.begin(0))
    assert [kept(log) for log in two.logs] == [[1], [1]]


def test_a_checkpoint_that_another_worker_is_writing_is_written_again(two: TwoThreads, tmp_path: Path) -> None:
    first, second = two.begin(0), two.begin(1)
    run_inline([first[1]], two.broker.manager.failures.fail)
    write = next(first[0])
    assert write is not None
    two.finish(*second)
    assert not (tmp_path / CLEANER_OFFSETS).exists(), "the first worker has still to write it"
    run_inline(itertools.chain([write], first[0]), two.broker.manager.failures.fail)
    assert sorted((tmp_path / CLEANER_OFFSETS).read_text().splitlines()[2:]) == ["x 0 2", "y 0 2"]


def in_transaction(log: UnifiedLog, producer_id: int, key: str | None, commit: bool = False) -> None:
    """One record of a producer's transaction, or without a key its end."""
    if key is None:
        data = build_end_txn_marker(commit=commit, producer_id=producer_id, producer_epoch=0, timestamp=NOW)
    else:
        record = Record(timestamp=NOW, key=key.encode(), value=b"in a transaction")
        data = build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True)
    log.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=NOW, origin=ORIGIN_COORDINATOR)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("commit", [True, False])
def test_an_abort_that_is_told_past_the_compacted_part_is_heeded(kit: Kit, commit: bool) -> None:
    """The last stable offset lies between data and its marker, since another transaction began there and is open."""
    append(kit.log, ("k", "good"))
    in_transaction(kit.log, 8, "k")
    kit.log.roll()
    in_transaction(kit.log, 7, "other")
    in_transaction(kit.log, 8, None, commit)
    kit.log.roll()
    append(kit.log, ("active", "1"))
    kit.run()
    assert kit.passes.count == 1
    assert dict(content(kit.log)).get(0) == (None if commit else b"good")
    assert (1 in kept(kit.log)) == commit
    in_transaction(kit.log, 7, None)
    kit.log.roll()
    kit.run()
    assert dict(content(kit.log)).get(0 if not commit else 1) == (b"in a transaction" if commit else b"good")


def test_an_unreadable_index_of_aborted_transactions_leaves_the_log_as_it_is(kit: Kit) -> None:
    kit.fill("a")
    Path(kit.log.directory, "00000000000000000002.txnindex").write_bytes(b"nonsense")
    kit.log.segments[-1].txn_index.release()
    kit.run()
    assert "00000000000000000002.txnindex" in kit.cleaner.uncleanable[X]
    assert kit.passes.count == 0


def test_dirty_bytes_below_the_ratio_wait(kit: Kit) -> None:
    kit.log.update_settings(LogSettings(cleanup_policy=(COMPACT,), min_cleanable_dirty_ratio=0.9))
    kit.fill("a", "b", "c")
    kit.run()
    kit.fill("d")
    kit.run()
    assert kit.passes.count == 1


@pytest.mark.parametrize("change", ["truncate", "delete", "retention", "append"])
def test_a_log_that_changes_meanwhile(kit: Kit, change: str) -> None:
    kit.fill("a")
    kit.fill("b")
    expected = kept(kit.log)

    def meanwhile() -> None:
        if change == "truncate":
            kit.log.truncate_to(2)
            append(kit.log, ("k", "b"), ("otherb", "b"))
            kit.log.roll()
        elif change == "delete":
            kit.manager.delete(X)
        elif change == "retention":
            kit.log.delete_segments(1)
        else:
            append(kit.log, ("k", "c"))

    kit.passes.before = meanwhile
    kit.run()
    if change == "append":
        assert kit.cleaner.statistics.stopped == 0
        assert kept(kit.log) == [1, 2, 3, 4]
        return
    assert kit.cleaner.statistics.stopped >= 1
    if change == "delete":
        assert kit.passes.stops == 1
        assert kit.manager.get(X) is None
    else:
        assert kit.leftovers() == []
        assert kept(kit.log) == (expected if change == "truncate" else [2, 3])


def test_a_topic_made_again_is_dirty_from_its_start(kit: Kit) -> None:
    kit.fill("a", "b")
    kit.run()
    kit.manager.delete(X)
    kit.log = kit.manager.create(X)
    kit.fill("c", "d", "e")
    kit.run()
    assert kit.passes.count == 2
    assert kept(kit.log) == [1, 3, 4, 5]


def test_a_log_cut_below_its_clean_part_is_dirty_from_its_start(kit: Kit) -> None:
    kit.fill("a", "b")
    kit.run()
    assert kept(kit.log) == [1, 2, 3]
    kit.log.truncate_to(2)
    kit.fill("c", "d")
    kit.run()
    assert kept(kit.log) == [1, 3, 4, 5]


def test_a_corrupt_log_is_named_and_skipped(kit: Kit) -> None:
    kit.fill("a")
    path = Path(kit.log.segments[0].log_path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(bytes(data))
    kit.run()
    assert "corrupt" in kit.cleaner.uncleanable[X]
    kit.run()
    assert kit.passes.count == 1
    assert kit.leftovers() == []


def test_a_full_disk_is_tried_again_as_often_as_it_takes(kit: Kit) -> None:
    kit.fill("a")

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    kit.passes.before = full
    for _ in range(5):
        kit.run()
        assert kit.cleaner.uncleanable == {}
    assert kit.manager.get(X) is kit.log
    kit.passes.before = lambda: None
    kit.run()
    assert kit.cleaner.statistics.passes == 1
    assert kept(kit.log) == [0, 1]


def test_a_worker_that_keeps_dying_is_given_up(kit: Kit) -> None:
    kit.fill("a")

    def die() -> None:
        raise CleanerProcessDied("the cleaner process ended")

    kit.passes.before = die
    for _ in range(4):
        kit.run()
    assert kit.passes.count == 3
    assert "3 times" in kit.cleaner.uncleanable[X]


def test_a_failing_disk_takes_its_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.topic_settings["x"] = COMPACTED
    log = broker.manager.create(X, directory=str(tmp_path / "a"))
    append(log, ("k", "1"), ("k", "2"))
    log.roll()
    cleaner = LogCleaner(broker.manager, lambda: InlinePassRunner(broker.files))
    work = cleaner.run()
    item = next(work)
    broker.files.broken.append(str(tmp_path / "a"))
    assert item is not None
    run_inline([item], broker.manager.failures.fail)
    assert list(work) == []
    assert [directory.path for directory in broker.manager.online_directories] == [str(tmp_path / "b")]
    broker.manager.release()


def test_an_idempotent_producer_survives_the_compaction_of_its_records(kit: Kit, tmp_path: Path) -> None:
    def produce(sequence: int, value: str) -> int:
        data = build_batch(
            [Record(key=b"k", value=value.encode(), timestamp=NOW)],
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence,
        )
        info = kit.log.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=NOW)
        kit.log.write_staged()
        kit.log.advance_high_watermark(kit.log.log_end_offset)
        return info.first_offset

    produce(0, "first")
    assert produce(1, "second") == 1
    append(kit.log, ("k", "by another"))
    kit.log.roll()
    kit.run()
    assert kept(kit.log) == [2]
    # Everything that the log remembers of its producers is lost, and read from the batches again.
    kit.broker.crash()
    for snapshot in Path(kit.log.directory).glob("*.snapshot"):
        snapshot.unlink()
    again = Kit(tmp_path)
    kit.log = again.log
    assert produce(1, "second") == 1
    assert produce(2, "third") == 3
    again.manager.close()


def test_closing_the_manager_stops_a_pass(kit: Kit) -> None:
    kit.fill("a")
    closed: list[bool] = []
    kit.passes.close = lambda: closed.append(True)  # type: ignore[method-assign]
    work = next(kit.cleaner.run())
    kit.manager.close()
    assert closed == [True]
    assert work is not None
    finish = work.act()
    assert finish is not None
    finish()
    assert kit.cleaner.statistics.passes == 0


def test_compact_and_delete_together(kit: Kit) -> None:
    kit.log.update_settings(LogSettings(cleanup_policy=(COMPACT, DELETE), min_cleanable_dirty_ratio=0.1))
    kit.fill("a")
    kit.log.increment_log_start_offset(2)
    kit.fill("b")
    kit.run()
    assert kept(kit.log) == [2, 3]


def test_a_crash_in_the_middle_of_a_swap_is_settled_at_start(kit: Kit, tmp_path: Path) -> None:
    kit.fill("a", "b")
    directory = Path(kit.log.directory)
    item = next(kit.cleaner.run())
    assert item is not None
    item.act()
    cleaned = sorted(directory.glob("*.cleaned"))
    assert cleaned
    kit.broker.crash()
    # Killed before anything was renamed: the old segment counts.
    again = Kit(tmp_path)
    assert kept(again.log) == [0, 1, 2, 3]
    assert again.leftovers() == []
    again.log.advance_high_watermark(4)
    item = next(again.cleaner.run())
    assert item is not None
    item.act()
    for path in sorted(directory.glob("*.cleaned"), reverse=True):
        path.rename(path.with_suffix(".swap"))
    again.broker.crash()
    # Killed after all was renamed to .swap: the new one counts.
    last = Kit(tmp_path)
    assert kept(last.log) == [1, 2, 3]
    assert last.leftovers() == []
    last.manager.close()
