from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import StorageFault
from braidlog.storage.dirs.checkpointing import CheckpointWrite, CleanShutdown, OffsetCheckpoints
from braidlog.storage.dirs.log_registry import FoundLog
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS
from braidlog.storage.jobs import InlineExecutor
from support.manager_fixture import Broker, append, tp


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Two directories with one partition each, two records in the first."""
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    append(broker.manager.create(tp("x")), ("k", "v"), ("k", "w"))
    broker.manager.create(tp("y"))
    return broker


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_each_directory_has_the_offsets_of_its_logs(broker: Broker, tmp_path: Path) -> None:
    checkpoints = OffsetCheckpoints(broker.manager.registry)
    assert checkpoints.offsets(HIGH_WATERMARKS) == {f"{tmp_path}/a": {tp("x"): 2}, f"{tmp_path}/b": {tp("y"): 0}}
    assert checkpoints.offsets(RECOVERY_POINTS)[f"{tmp_path}/a"] == {tp("x"): 0}
    broker.manager.registry.logs[tp("x")].sync_to(2)
    assert checkpoints.offsets(RECOVERY_POINTS)[f"{tmp_path}/a"] == {tp("x"): 2}


def test_a_start_offset_is_written_where_the_first_segment_does_not_say_it(broker: Broker, tmp_path: Path) -> None:
    checkpoints = OffsetCheckpoints(broker.manager.registry)
    assert checkpoints.offsets(START_OFFSETS) == {f"{tmp_path}/a": {}, f"{tmp_path}/b": {}}
    broker.manager.registry.logs[tp("x")].increment_log_start_offset(1)
    assert checkpoints.offsets(START_OFFSETS)[f"{tmp_path}/a"] == {tp("x"): 1}


def test_a_log_that_is_not_open_keeps_what_was_written(broker: Broker, tmp_path: Path) -> None:
    registry = broker.manager.registry
    registry.unopened[tp("u")] = FoundLog(f"{tmp_path}/b/u-0", tp("u"), 3, 5, 4)
    registry.unopened[tp("v")] = FoundLog(f"{tmp_path}/b/v-0", tp("v"), 0, 0, 0)
    checkpoints = OffsetCheckpoints(registry)
    assert checkpoints.offsets(START_OFFSETS)[f"{tmp_path}/b"] == {tp("u"): 3}
    assert checkpoints.offsets(RECOVERY_POINTS)[f"{tmp_path}/b"] == {tp("y"): 0, tp("u"): 5, tp("v"): 0}
    assert checkpoints.offsets(HIGH_WATERMARKS)[f"{tmp_path}/b"][tp("u")] == 4


def test_other_checkpoints_are_not_kept_here(broker: Broker) -> None:
    with pytest.raises(ValueError, match="cleaner-offset-checkpoint"):
        OffsetCheckpoints(broker.manager.registry).offsets("cleaner-offset-checkpoint")


def test_a_write_is_one_piece_of_work_for_each_directory_that_works(broker: Broker, tmp_path: Path) -> None:
    registry = broker.manager.registry
    works = OffsetCheckpoints(registry).writes(HIGH_WATERMARKS)
    assert [work.directory for work in works] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    for work in works:
        assert work.act() is None
    assert lines(tmp_path / "a" / HIGH_WATERMARKS) == ["0", "1", "x 0 2"]
    registry.take_offline(registry.directories[0], StorageFault(f"{tmp_path}/a", "gone"))
    assert [work.directory for work in OffsetCheckpoints(registry).writes(HIGH_WATERMARKS)] == [f"{tmp_path}/b"]
    CheckpointWrite(registry.directories[0], HIGH_WATERMARKS, {tp("x"): 9})()
    assert lines(tmp_path / "a" / HIGH_WATERMARKS) == ["0", "1", "x 0 2"]


@pytest.mark.parametrize(("mark", "unopened"), [(True, False), (False, False), (True, True)])
def test_a_stop_is_clean_only_when_every_log_was_closed(
    broker: Broker, tmp_path: Path, mark: bool, unopened: bool
) -> None:
    registry = broker.manager.registry
    directory = registry.directories[0]
    left = {tp("u"): FoundLog(f"{tmp_path}/a/u-0", tp("u"), 0, 0, 0)} if unopened else {}
    stop = CleanShutdown(directory, registry.logs_in(directory), (), left, InlineExecutor())
    stop.finish(7, mark=mark)
    assert "x 0 2" in lines(tmp_path / "a" / RECOVERY_POINTS)
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists() is (mark and not unopened)


def test_what_a_truncation_took_is_in_no_checkpoint_before_more_is_appended(broker: Broker, tmp_path: Path) -> None:
    log = broker.manager.registry.logs[tp("x")]
    log.sync_to(2)
    log.increment_log_start_offset(1)
    checkpoints = OffsetCheckpoints(broker.manager.registry)
    before = [work for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS) for work in checkpoints.writes(name)]
    log.truncate_fully_and_start_at(0)
    works = checkpoints.writes_after_truncation({f"{tmp_path}/a"})
    assert {work.directory for work in works} == {f"{tmp_path}/a"}
    # Writes that were put together before the truncation may come late.
    for work in [*works, *before]:
        work.act()
    directory = broker.manager.registry.directory_of(tp("x"))
    assert directory.read_checkpoint(RECOVERY_POINTS) == {tp("x"): 0}
    assert directory.read_checkpoint(HIGH_WATERMARKS) == {tp("x"): 0}
    assert directory.read_checkpoint(START_OFFSETS) == {}
