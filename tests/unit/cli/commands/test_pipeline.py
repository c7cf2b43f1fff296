"""What `braidlog pipeline` does without Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from braidlog.cli.pipelines import pipeline_replay
from braidlog.cli.pipelines.pipeline_project import command_of, reason
from braidlog.cli.pipelines.pipeline_state import lag_rows, status_row
from braidlog.cli.program import main
from braidlog.cli.topic_selection import TopicSelection
from braidlog.client.admin.records import ListedOffset
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.testing import Broker
from pyspark_braidlog.jobs.checkpoint import read_checkpoint
from pyspark_braidlog.jobs.run_lock import RunLock

OFFSETS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"@ids": {"orders": "x"}, "orders": {"0": 20, "1": 7}}'
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    place = tmp_path / "state" / "clean"
    for log, text in (("offsets", OFFSETS), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
        (place / log).mkdir(parents=True)
        (place / log / "4").write_text(text)
        os.utime(place / log / "4", (1000.0, 1000.0))
    (place / "metadata").write_text('{"id":"59f0"}')
    return place


# init


def test_a_project_names_itself_and_its_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIDLOG_BOOTSTRAP", "kafka:9092")
    home = tmp_path / "my shop"
    words = ["--topic", "web.Orders", "--output", "json"]
    assert main(["pipeline", "init", str(home), *words]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["directory"] == str(home)
    assert set(reported["files"]) == {
        str(each.relative_to(home)) for each in home.rglob("*") if each.is_file() and "__pycache__" not in each.parts
    }
    everything = {name: (home / name).read_text() for name in reported["files"]}
    assert not any("@" in text.replace("@dp.", "") for text in everything.values())
    source = everything["transformations/orders.py"]
    compile(source, "orders.py", "exec")
    assert '"kafka:9092"' in source
    assert "def web_orders()" in source
    assert '"subscribe", "web.Orders"' in source
    assert f"storage: {home.as_uri()}/state/checkpoints" in everything["spark-pipeline.yml"]
    assert "name: my-shop" in everything["spark-pipeline.yml"]
    assert "%20" in everything["conf/spark-defaults.conf"]


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert main(["pipeline", "init", str(tmp_path)]) == 1
    assert "README.md is there already, and nothing is overwritten" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("topic", ["", "a b", "ä"])
def test_topics_with_impossible_names(tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "init", str(tmp_path / "x"), "--topic", topic]) == 1
    assert "is no name for a topic" in capsys.readouterr().err


# run


def test_paths_that_cannot_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", str(tmp_path / "missing.py")]) == 1
    assert "does not exist; give a Python file" in capsys.readouterr().err
    assert main(["pipeline", "run", str(tmp_path)]) == 1
    assert "has no spark-pipeline.yml" in capsys.readouterr().err


def test_without_spark_it_says_how_to_get_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("")
    program = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyspark' else find(name, *rest)\n"
        f"from braidlog.cli.program import main; raise SystemExit(main(['pipeline', 'run', {str(file)!r}]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "braidlog: Spark is not installed: pip install 'braidlog[spark]'\n")


def options(**given: Any) -> Namespace:
    return Namespace(**{"master": None, "remote": None, "conf": [], "java": None, **given})


def test_a_project_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP"):
        monkeypatch.delenv(name, raising=False)
    spec = tmp_path / "spark-pipeline.yml"
    (tmp_path / "conf").mkdir()
    words, environment = command_of(spec, options(master="local[2]", conf=["spark.a=b"]))
    assert words[0].endswith("/bin/spark-pipelines")
    assert words[1:] == ["run", "--spec", str(spec), "--remote", "local[2]", "--conf", "spark.a=b"]
    assert environment["SPARK_CONF_DIR"] == str(tmp_path / "conf")
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    with pytest.raises(UserError, match=r"start-connect-server.sh --master spark://h:7077.*--remote sc://"):
        command_of(spec, options(master="spark://h:7077"))
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert command_of(spec, options())[1]["SPARK_CONF_DIR"] == "/etc/spark"


def test_why_a_project_failed() -> None:
    output = (
        "2026-11-16 09:06:44: Starting run...\n"
        "2026-11-16 09:06:45: Failed to resolve flow: 'spark_catalog.default.counted'.\n"
        'Error: [CANNOT_RESOLVE_DATAFRAME_COLUMN] Cannot resolve dataframe column "value". SQLSTATE: 42704\n'
        "Traceback (most recent call last):\n"
        '  File "cli.py", line 450, in <module>\n'
        "pyspark.errors.exceptions.connect.AnalysisException: \nFailed to resolve flows in the pipeline.\n"
    )
    assert reason(output) == 'flow spark_catalog.default.counted: Cannot resolve dataframe column "value".'
    assert "did not say why" in reason("")


# status and lag


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


def test_looking_at_checkpoints_needs_neither_spark_nor_arrow(checkpoint: Path) -> None:
    program = (
        "import sys; from braidlog.cli.program import main\n"
        f"main(['pipeline', 'status', {str(checkpoint)!r}])\n"
        "import braidlog.cli.pipelines.pipeline_replay\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'numpy') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("[]\n")


# run


def test_a_missing_topic_is_told_before_spark_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "clean.py"
    with Broker() as broker:
        file.write_text(
            f'BROKER = {{"kafka.bootstrap.servers": "{broker.bootstrap_servers}"}}\n'
            "def pipeline(spark):\n"
            '    return spark.readStream.format("braidlog").options(**BROKER, subscribe="nope").load().writeStream\n'
        )
        # There is no Java that Spark could be started with.
        assert main(["pipeline", "run", str(file), "--java", str(tmp_path / "nowhere")]) == 1
    assert f"{file}, line 3: topic nope does not exist" in capsys.readouterr().err


# replay


def test_a_replay_is_refused_while_somebody_is_at_it(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RunLock(checkpoint)
    assert lock.take()
    assert main(["pipeline", "replay", str(checkpoint), "--to-earliest", "--execute", "--force"]) == 1
    lock.release()
    assert "the query is running (process " in capsys.readouterr().err
    # Something wrote to the checkpoint after the run had let go of it.
    soon = time.time() + 5.0
    os.utime(checkpoint / "offsets" / "4", (soon, soon))
    assert main(["pipeline", "replay", str(checkpoint), "--to-earliest", "--execute"]) == 1
    assert "may be running: stop it first; if it is stopped, say --force" in capsys.readouterr().err


def test_a_replay_after_a_run_that_was_stopped_needs_no_force(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        words = ["--to-earliest", "--execute", "--bootstrap", broker.bootstrap_servers]
        lock = RunLock(checkpoint)
        assert lock.take()
        os.utime(checkpoint / "offsets" / "4")
        lock.release()
        assert main(["pipeline", "replay", str(checkpoint), *words]) == 0, capsys.readouterr().err
        # Nor does one after another; copies of old checkpoints are told apart by the second.
        for backup in checkpoint.parent.glob("clean.before-replay-*"):
            shutil.rmtree(backup)
        assert main(["pipeline", "replay", str(checkpoint), *words]) == 0, capsys.readouterr().err


def test_a_replay_after_a_run_that_was_killed_needs_force(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import os, sys, pathlib; from pyspark_braidlog.jobs.run_lock import RunLock\n"
        f"place = pathlib.Path({str(checkpoint)!r}); RunLock(place).take()\n"
        "os.utime(place / '.braidlog-run.lock', (2, 2))\n"
        "os.utime(place / 'offsets' / '4'); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert main(["pipeline", "replay", str(checkpoint), "--to-earliest", "--execute"]) == 1
    assert "say --force" in capsys.readouterr().err


def test_partitions_of_a_replay(checkpoint: Path) -> None:
    found = read_checkpoint(checkpoint)
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert pipeline_replay.chosen(found, []) == {first: 20, second: 7}
    assert pipeline_replay.chosen(found, [TopicSelection("orders", (1,))]) == {second: 7}
    with pytest.raises(UserError, match="does not read topic users; it reads orders"):
        pipeline_replay.chosen(found, [TopicSelection("users")])
    with pytest.raises(UserError, match="does not read partition 9 of topic orders"):
        pipeline_replay.chosen(found, [TopicSelection("orders", (0, 9))])


@pytest.mark.parametrize("words", [[], ["--to-earliest", "--to-latest"], ["--to-offset", "-1"]])
def test_where_to_is_said_once(checkpoint: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["pipeline", "replay", str(checkpoint), *words])
    assert exit_.value.code == 2
