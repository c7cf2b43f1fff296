"""preallocate: room for a whole segment is set aside when it begins, and what is left of it given back when it ends."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.storage.files import File, OsFiles
from braidlog.storage.log.unified_log import UnifiedLog
from support.log_kit import FailingDisk, FailingFile
from support.manager_fixture import Broker, FailingFiles, append, content, tp

SIZE = 1 << 20
PREALLOCATED = LogSettings(preallocate=True, segment_bytes=SIZE)
X = tp("x")


def opened(root: Path, settings: LogSettings = PREALLOCATED) -> tuple[Broker, UnifiedLog]:
    broker = Broker(root)
    broker.topic_settings["x"] = settings
    broker.start()
    return broker, broker.manager.create(X)


def on_disk(log: UnifiedLog, number: int = -1) -> tuple[int, int]:
    """(size, bytes that the file system holds) of a segment's log."""
    status = os.stat(log.segments[number].log_path)
    return status.st_size, status.st_blocks * 512


def holds_a_segment(log: UnifiedLog, number: int = -1) -> bool:
    return on_disk(log, number)[1] >= SIZE


def test_a_new_segment_has_its_room_and_nothing_in_it(tmp_path: Path) -> None:
    broker, log = opened(tmp_path)
    assert on_disk(log)[0] == 0
    assert holds_a_segment(log)
    append(log, ("k", "v"))
    assert on_disk(log)[0] == log.size
    assert content(log) == [(0, b"v")]
    broker.manager.close()


def test_without_the_setting_nothing_is_set_aside(tmp_path: Path) -> None:
    broker, log = opened(tmp_path, LogSettings(segment_bytes=SIZE))
    assert not holds_a_segment(log)
    broker.manager.close()


def test_a_roll_gives_back_what_is_left_and_reserves_anew(tmp_path: Path) -> None:
    broker, log = opened(tmp_path)
    append(log, ("k", "v"))
    log.roll()
    assert not holds_a_segment(log, 0)
    assert holds_a_segment(log, 1)
    assert content(log) == [(0, b"v")]
    broker.manager.close()


def test_a_change_counts_from_the_next_segment_on(tmp_path: Path) -> None:
    broker, log = opened(tmp_path, LogSettings(segment_bytes=SIZE))
    append(log, ("k", "v"))
    log.update_settings(PREALLOCATED)
    assert not holds_a_segment(log)
    log.roll()
    assert holds_a_segment(log)
    broker.manager.close()


@pytest.mark.parametrize("records", [0, 1])
def test_a_clean_stop_gives_back_what_is_left(tmp_path: Path, records: int) -> None:
    broker, log = opened(tmp_path)
    for _ in range(records):
        append(log, ("k", "v"))
    path = log.segments[-1].log_path
    broker.manager.close()
    status = os.stat(path)
    assert status.st_blocks * 512 < SIZE
    _, again = opened(tmp_path)
    assert content(again) == [(0, b"v")] * records
    assert again.recovery.found_whole


def test_after_a_crash_what_is_left_is_given_back_at_the_next_roll(tmp_path: Path) -> None:
    broker, log = opened(tmp_path)
    append(log, ("k", "v"))
    broker.manager.release()
    broker, log = opened(tmp_path, LogSettings(segment_bytes=SIZE))
    assert not log.recovery.lost
    assert content(log) == [(0, b"v")]
    assert holds_a_segment(log), "it is still there to be filled"
    log.roll()
    assert not holds_a_segment(log, 0)
    broker.manager.close()


def test_zeros_behind_the_last_batch_are_cut_off_after_a_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a Kafka leaves its preallocated segment when it is killed."""
    broker, log = opened(tmp_path, LogSettings())
    append(log, ("k", "v"))
    append(log, ("k", "w"))
    size = log.size
    path = log.segments[-1].log_path
    broker.manager.release()
    os.truncate(path, 5 << 20)
    with caplog.at_level(logging.WARNING):
        broker, log = opened(tmp_path, LogSettings())
    assert os.stat(path).st_size == log.size == size
    assert content(log) == [(0, b"v"), (1, b"w")]
    assert log.recovery.lost == []
    assert not [name for name in os.listdir(log.directory) if name.startswith("lost-")]
    assert f"cutting off {(5 << 20) - size} zero bytes behind offset 1" in caplog.text
    append(log, ("k", "x"))
    assert [value for _, value in content(log)] == [b"v", b"w", b"x"]
    broker.manager.close()


def test_zeros_that_something_follows_are_lost_and_saved_as_before(tmp_path: Path) -> None:
    broker, log = opened(tmp_path, LogSettings())
    append(log, ("k", "v"))
    path = log.segments[-1].log_path
    broker.manager.release()
    os.truncate(path, 3 << 20)
    with open(path, "ab") as file:
        file.write(b"more")
    broker, log = opened(tmp_path, LogSettings())
    (lost,) = log.recovery.lost
    assert lost.saved_as is not None
    assert content(log) == [(0, b"v")]
    broker.manager.close()


def test_where_nothing_can_be_reserved_the_log_works_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreservable(FailingFile):
        def reserve(self, size: int) -> bool:
            return False

    def open_append(self: FailingFiles, path: str) -> File:
        return Unreservable(OsFiles.open_append(self, path), FailingDisk(), path)

    monkeypatch.setattr(FailingFiles, "open_append", open_append)
    with caplog.at_level(logging.WARNING):
        broker, log = opened(tmp_path)
        append(log, ("k", "v"))
        log.roll()
        append(log, ("k", "w"))
    assert content(log) == [(0, b"v"), (1, b"w")]
    assert caplog.text.count("preallocate has no effect for x-0") == 1
    broker.manager.close()
