from __future__ import annotations

import json
from pathlib import Path

import pytest

from braidlog.cli.pipelines.pipeline_state import lag_rows, status_row
from braidlog.cli.program import main
from braidlog.client.admin.records import ListedOffset
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.testing import Broker
from pyspark_braidlog.jobs.checkpoint import read_checkpoint
from pyspark_braidlog.jobs.run_lock import RunLock
from support.query_offsets import OFFSETS


def test_status(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", str(tmp_path), "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "checkpoint": str(checkpoint),
        "query_id": "59f0",
        "batch": 4,
        "planned_batch": 4,
        "state": "between batches",
        "running": None,
        "last_batch": "1970-01-01T00:16:40.000+00:00",
        "watermark": None,
        "keeps_state": False,
        "positions": [
            {"source": None, "topic": "orders", "partition": 0, "offset": 20},
            {"source": None, "topic": "orders", "partition": 1, "offset": 7},
        ],
    }
    lock = RunLock(checkpoint)
    assert lock.take()
    row = status_row(read_checkpoint(checkpoint), "table", now_s=1300.0)
    lock.release()
    assert (row["state"], row["last_batch"], row["positions"]) == (
        "between batches, running",
        "5 min ago",
        "orders-0=20 orders-1=7",
    )


def test_status_of_a_batch_that_is_under_way(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "5").write_text(OFFSETS)
    assert status_row(read_checkpoint(checkpoint), "table")["state"] == "batch 5 begun"


NAMED = (
    'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{},"sourceMetadataInfo":{}}\n'
    'clicks:{"@ids": {"clicks": "y"}, "clicks": {"0": 5}}\norders:{"@ids": {"orders": "x"}, "orders": {"0": 20}}\nold:-'
)


def test_sources_with_names(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkpoint / "offsets" / "4").write_text(NAMED)
    assert main(["pipeline", "status", str(checkpoint)]) == 0
    assert "clicks:clicks-0=5 orders:orders-0=20" in capsys.readouterr().out
    with Broker() as broker:
        for topic in ("orders", "clicks"):
            broker.create_topic(topic)
            for number in range(30):
                broker.producer().send(topic, value=b"%d" % number)
            broker.producer().flush()
        words = ["--bootstrap", broker.bootstrap_servers, "--output", "json"]
        assert main(["pipeline", "lag", str(checkpoint), *words]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(row["source"], row["topic"], row["lag"]) for row in rows] == [
            ("clicks", "clicks", 25),
            ("orders", "orders", 10),
        ]
        replay = ["pipeline", "replay", str(checkpoint), "--to-earliest", "--force", "--execute", *words]
        assert main([*replay, "--source", "nobody"]) == 1
        assert "has no source nobody that reads topics: it has clicks, orders" in capsys.readouterr().err
        assert main([*replay, "--source", "orders"]) == 0
    assert (checkpoint / "offsets" / "5").read_text().splitlines()[2:] == [
        'clicks:{"@ids": {"clicks": "y"}, "clicks": {"0": 5}}',
        'orders:{"@ids": {"orders": "x"}, "orders": {"0": 0}}',
        "old:-",
    ]
    assert (checkpoint / "offsets" / "5").read_text().startswith("v2\n")
    assert read_checkpoint(checkpoint).by_source() == {
        "clicks": {TopicPartition("clicks", 0): 5},
        "orders": {TopicPartition("orders", 0): 0},
    }


def test_lag_by_partition() -> None:
    place = [TopicPartition("orders", number) for number in range(3)]
    ends = {
        place[0]: ListedOffset(offset=25, timestamp_ms=-1, leader_epoch=-1),
        place[1]: UnknownTopicOrPartitionError("gone"),
        place[2]: ListedOffset(offset=3, timestamp_ms=-1, leader_epoch=-1),
    }
    rows = lag_rows("clean", {place[0]: 20, place[1]: 7, place[2]: 5}, ends)
    assert [row["lag"] for row in rows] == [5, None, 0]
    assert [row["log_end_offset"] for row in rows] == [25, None, 3]


def test_lag_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "lag"]) == 1
    assert "say which queries" in capsys.readouterr().err
