"""What a replay writes; that Spark takes it so is tested with Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from pyspark_braidlog.jobs.checkpoint import read_checkpoint
from pyspark_braidlog.jobs.replay import execute, plan_replay

NOW = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
METADATA = '{"batchWatermarkMs":5000,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"4"}}'
FIRST = '{"@ids": {"orders": "1Q19"}, "@initial": {"orders": {"0": 3, "1": 0}}, "orders": {"0": 20, "1": 7}}'
SECOND = '{"@ids": {"orders": "1Q19"}, "orders": {"0": 40, "1": 9}}'
PLACE = TopicPartition("orders", 0)


def checkpoint_in(place: Path, offsets: dict[int, list[str]], commits: list[int], *, state: bool = False) -> Path:
    (place / "offsets").mkdir(parents=True)
    (place / "commits").mkdir()
    (place / "metadata").write_text('{"id":"old"}')
    for number, lines in offsets.items():
        (place / "offsets" / str(number)).write_text("\n".join(["v1", METADATA, *lines]))
    for number in commits:
        (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    if state:
        (place / "state" / "0" / "0").mkdir(parents=True)
    return place


def test_without_state_one_more_batch_is_done_that_ends_there(tmp_path: Path) -> None:
    place = checkpoint_in(tmp_path / "c", {0: [FIRST], 1: [SECOND]}, [0, 1])
    (place / "offsets" / ".2.crc").write_bytes(b"of something else")
    replay = plan_replay(read_checkpoint(place), {PLACE: 11}, drop_state=False)
    assert (replay.number, replay.is_fresh, replay.notes) == (2, False, ())
    backup = execute(replay, NOW)
    assert backup == tmp_path / "c.before-replay-20240501T120000"
    assert not (backup / "offsets" / "2").exists()
    found = read_checkpoint(place)
    assert found.query_id == "old"
    assert found.done is not None
    assert found.done.number == 2
    assert found.positions == {PLACE: 11, TopicPartition("orders", 1): 9}
    assert found.done.metadata == {
        "batchWatermarkMs": 5000,
        "batchTimestampMs": 1714564800000,
        "conf": {"spark.sql.shuffle.partitions": "4"},
    }
    assert (place / "commits" / "2").read_text() == 'v1\n{"nextBatchWatermarkMs":5000}'
    assert not (place / "offsets" / ".2.crc").exists()


def test_the_number_of_a_batch_that_was_begun_is_not_used_again(tmp_path: Path) -> None:
    place = checkpoint_in(tmp_path / "c", {0: [FIRST], 1: [SECOND]}, [0])
    replay = plan_replay(read_checkpoint(place), {PLACE: 11}, drop_state=False)
    assert replay.number == 2
    assert "batch 1 was begun and not finished" in replay.notes[0]
    execute(replay, NOW)
    # What was not chosen stays where the last batch that was done left it.
    assert read_checkpoint(place).positions == {PLACE: 11, TopicPartition("orders", 1): 7}


def test_with_state_everything_begins_anew(tmp_path: Path) -> None:
    place = checkpoint_in(tmp_path / "c", {0: [FIRST], 1: [SECOND]}, [0, 1], state=True)
    with pytest.raises(UserError, match=r"keeps state.*--drop-state"):
        plan_replay(read_checkpoint(place), {PLACE: 11}, drop_state=False)
    replay = plan_replay(read_checkpoint(place), {PLACE: 11}, drop_state=True)
    assert "_spark_metadata" in replay.notes[0]
    backup = execute(replay, NOW)
    assert (backup / "state").is_dir()
    found = read_checkpoint(place)
    assert found.query_id != "old"
    assert not found.has_state
    assert found.done is None
    assert found.planned is not None
    assert found.planned.number == 0
    assert found.planned.watermark_ms == 0
    # Batch 0 is written down and not done: it begins and ends where reading shall begin.
    assert json.loads(found.planned.sources[0].text)["@initial"] == {"orders": {"0": 11, "1": 9}}
    assert found.positions == {PLACE: 11, TopicPartition("orders", 1): 9}


def test_before_the_first_batch_is_done(tmp_path: Path) -> None:
    place = checkpoint_in(tmp_path / "c", {0: [FIRST]}, [])
    replay = plan_replay(read_checkpoint(place), {PLACE: 1}, drop_state=False)
    assert replay.is_fresh
    execute(replay, NOW)
    assert read_checkpoint(place).positions == {PLACE: 1, TopicPartition("orders", 1): 0}


def test_sources_that_are_no_topics(tmp_path: Path) -> None:
    files = '{"logOffset":3}'
    place = checkpoint_in(tmp_path / "c", {0: [files, FIRST]}, [0])
    replay = plan_replay(read_checkpoint(place), {PLACE: 1}, drop_state=False)
    assert replay.sources[0] == files
    stateful = checkpoint_in(tmp_path / "s", {0: [files, FIRST]}, [0], state=True)
    with pytest.raises(UserError, match="also reads from something that is no topic"):
        plan_replay(read_checkpoint(stateful), {PLACE: 1}, drop_state=True)
    connector = checkpoint_in(tmp_path / "k", {0: ['{"orders":{"0":12}}']}, [0], state=True)
    with pytest.raises(UserError, match="Spark's Kafka connector"):
        plan_replay(read_checkpoint(connector), {PLACE: 1}, drop_state=True)


def test_nothing_read_yet_and_a_backup_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has read nothing yet"):
        plan_replay(read_checkpoint(checkpoint_in(tmp_path / "e", {}, [])), {}, drop_state=False)
    place = checkpoint_in(tmp_path / "c", {0: [FIRST]}, [0])
    (tmp_path / "c.before-replay-20240501T120000").mkdir()
    with pytest.raises(UserError, match="is there already"):
        execute(plan_replay(read_checkpoint(place), {PLACE: 1}, drop_state=False), NOW)
    assert read_checkpoint(place).positions[PLACE] == 20
