"""Checkpoints as Spark 4.3 writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from pyspark_braidlog.jobs.checkpoint import find_checkpoints, read_checkpoint, read_source, written_source

METADATA = '{"batchWatermarkMs":5000,"batchTimestampMs":1794820739677,"conf":{"spark.sql.shuffle.partitions":"4"}}'
OURS = '{"@ids": {"orders": "1Q19"}, "@initial": {"orders": {"0": 3, "1": 0}}, "orders": {"0": 20, "1": 7}}'
LATER = '{"@ids": {"orders": "1Q19"}, "orders": {"0": 40, "1": 9}}'


def checkpoint_in(place: Path, offsets: dict[int, list[str]], commits: list[int]) -> Path:
    (place / "offsets").mkdir(parents=True)
    (place / "commits").mkdir()
    (place / "metadata").write_text('{"id":"59f0db33"}')
    for number, lines in offsets.items():
        (place / "offsets" / str(number)).write_text("\n".join(["v1", METADATA, *lines]))
        (place / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in commits:
        (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return place


def test_the_newest_batch_that_is_done_tells_the_position(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint_in(tmp_path / "c", {9: [OURS], 10: [LATER]}, [9, 10]))
    assert found.query_id == "59f0db33"
    assert found.planned is not None
    assert found.done is not None
    assert (found.planned.number, found.done.number, found.done.watermark_ms) == (10, 10, 5000)
    assert found.positions == {TopicPartition("orders", 0): 40, TopicPartition("orders", 1): 9}
    assert not found.has_state


def test_a_batch_that_is_not_done_does_not_count(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint_in(tmp_path / "c", {0: [OURS], 1: [LATER]}, [0]))
    assert found.planned is not None
    assert found.planned.number == 1
    assert found.positions == {TopicPartition("orders", 0): 20, TopicPartition("orders", 1): 7}


def test_before_the_first_batch_is_done_the_stream_stands_where_it_begins(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint_in(tmp_path / "c", {0: [OURS]}, []))
    assert found.done is None
    assert found.positions == {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 0}


def test_two_sources_of_one_topic_and_one_that_has_nothing(tmp_path: Path) -> None:
    found = read_checkpoint(checkpoint_in(tmp_path / "c", {0: [LATER, OURS, "-", '{"logOffset":3}']}, [0]))
    assert found.positions == {TopicPartition("orders", 0): 20, TopicPartition("orders", 1): 7}


def test_no_batch_yet_and_state(tmp_path: Path) -> None:
    place = checkpoint_in(tmp_path / "c", {}, [])
    (place / "state" / "0" / "0").mkdir(parents=True)
    found = read_checkpoint(place)
    assert (found.planned, found.positions, found.has_state) == (None, {}, True)


def test_sources_of_other_kinds() -> None:
    connector = read_source('{"orders":{"0":12}}')
    assert connector.positions == {TopicPartition("orders", 0): 12}
    assert not connector.is_ours
    assert read_source('{"orders": {"0": 12}}').is_ours
    for line in ('{"logOffset":3}', "17", "-", '{"orders":{"zero":1}}', "{}"):
        assert read_source(line).positions is None


def test_what_is_written_is_what_the_source_would_write() -> None:
    place = TopicPartition("orders", 0)
    ours = read_source(LATER)
    moved = {TopicPartition("orders", 10): 1, TopicPartition("orders", 2): 2, place: 5}
    assert written_source(ours, moved) == '{"@ids": {"orders": "1Q19"}, "orders": {"0": 5, "2": 2, "10": 1}}'
    begins = json.loads(written_source(ours, {place: 5}, begins=True))
    assert begins == {"@ids": {"orders": "1Q19"}, "@initial": {"orders": {"0": 5}}, "orders": {"0": 5}}
    assert written_source(read_source('{"orders":{"0":12}}'), {place: 5}) == '{"orders":{"0":5}}'


def test_checkpoints_are_found_below_a_directory(tmp_path: Path) -> None:
    # As deep as declarative pipelines put them.
    deep = checkpoint_in(tmp_path / "a/state/checkpoints/_checkpoints/spark_catalog/default/orders/orders/0", {}, [])
    shallow = checkpoint_in(tmp_path / "z", {}, [])
    assert find_checkpoints(tmp_path) == [deep, shallow]
    assert find_checkpoints(deep) == [deep]
    with pytest.raises(UserError, match="does not exist"):
        find_checkpoints(tmp_path / "missing")
    with pytest.raises(UserError, match="is no checkpoint of a streaming query and has none below it"):
        find_checkpoints(deep / "offsets")


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("metadata", "{}", "does not hold a query's id"),
        ("offsets/0", "v3\n{}", "begins with 'v3'"),
        ("offsets/0", "v2\n{}\n-", "is cut short or damaged: there is no name"),
        ("offsets/0", 'v1\n{"batchWa', "is cut short or damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, text: str, sentence: str) -> None:
    place = checkpoint_in(tmp_path / "c", {0: [OURS]}, [0])
    (place / file).write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_checkpoint(place)
