from __future__ import annotations

import threading
from pathlib import Path

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import CorruptLogError
from braidlog.storage.cleaner.cleaning_request import CleanerConfig, LogCleaningAborted
from braidlog.storage.cleaner.pass_runner import CleanerProcessDied, ProcessPassRunner, Throttle
from braidlog.storage.files import OsFiles
from support.cleaner_fixture import SegmentDirectory, three_keys


@pytest.fixture
def directory(tmp_path: Path) -> SegmentDirectory:
    return three_keys(tmp_path)


def test_a_worker_process_does_the_same_as_this_one(directory: SegmentDirectory) -> None:
    passes = ProcessPassRunner(OsFiles(), small_pass_bytes=0)
    try:
        result = passes.run(directory.request(9), lambda: False)
        directory.swap(result)
        assert [record.offset for record in directory.records()] == [6, 7, 8]
        # The same process serves the next request, and reports what it could not do.
        directory.file(0, ".log").write_bytes(b"\0" * 100)
        with pytest.raises(CorruptLogError):
            passes.run(directory.request(9), lambda: False)
        request = directory.request(9)
        directory.file(0, ".log").unlink()
        with pytest.raises(FileNotFoundError):
            passes.run(request, lambda: False)
    finally:
        passes.close()


def test_a_small_pass_needs_no_process(directory: SegmentDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = ProcessPassRunner(OsFiles())
    monkeypatch.setattr(passes, "_started", lambda: pytest.fail("a process was started"))
    assert passes.run(directory.request(9), lambda: False).end_offset == 9


def test_stopping_kills_the_process_and_the_next_order_gets_a_new_one(directory: SegmentDirectory) -> None:
    passes = ProcessPassRunner(OsFiles(), small_pass_bytes=0)
    stopped = threading.Event()
    # So slow that it is certainly at work when it is stopped.
    slow = directory.request(9, memory=CleanerConfig(max_io_bytes_per_second=1))
    problems: list[BaseException] = []

    def run() -> None:
        try:
            passes.run(slow, stopped.is_set)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    while passes._process is None:
        thread.join(0.01)
    stopped.set()
    passes.stop()
    thread.join()
    assert [type(problem) for problem in problems] == [LogCleaningAborted]
    try:
        result = passes.run(directory.request(9), lambda: False)
        assert result.records_after == 3
    finally:
        passes.close()


def test_a_process_that_dies_by_itself_is_reported(directory: SegmentDirectory) -> None:
    passes = ProcessPassRunner(OsFiles(), small_pass_bytes=0)
    process = passes._started()
    process.kill()
    passes._process = process
    slow = directory.request(9)
    process.wait()
    passes._started = lambda: process  # type: ignore[method-assign]
    with pytest.raises(CleanerProcessDied):
        passes.run(slow, lambda: False)
    passes.close()


def test_the_throttle_sleeps_off_what_is_ahead_of_the_rate() -> None:
    clock = ManualClock()
    throttle = Throttle(100.0, clock, clock.advance)
    for _ in range(5):
        throttle.maybe_throttle(50)
    assert clock.monotonic() == pytest.approx(2.5)
    unlimited = Throttle(float("inf"), clock, lambda seconds: pytest.fail("slept"))
    unlimited.maybe_throttle(10**12)
