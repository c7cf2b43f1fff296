"""Looking into a broker's files, sound and damaged, while it runs and after it stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.client import Producer
from support.broker import Broker

SEGMENT = "00000000000000000000"


@pytest.fixture
def stopped(topic: str, start_broker: Callable[..., Broker]) -> Path:
    """The directory of a partition with 100 records in 10 batches, its broker stopped."""
    broker = start_broker({"log.index.interval.bytes": "1"})
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as producer:
        for number in range(100):
            producer.send(topic, b"v" * 200, b"%d" % number)
            if number % 10 == 9:
                producer.flush()
    # A Java process that SIGTERM stops cleanly ends so.
    assert broker.stop() == (143 if broker.is_kafka else 0)
    return broker.data_dir / f"{topic}-0"


def test_dump_verify_and_rebuild(stopped: Path, cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    log, index = str(stopped / f"{SEGMENT}.log"), stopped / f"{SEGMENT}.index"

    batches = cli("log", "dump", log, "--output", "json").succeeded().json_lines
    assert [each["base_offset"] for each in batches] == list(range(0, 100, 10))
    assert all(each["file"] == log and each["is_valid"] for each in batches)
    listed = cli("log", "dump", str(stopped), "--records", "--from-offset", "95", "--output", "json").succeeded()
    entries = listed.json_lines
    assert [each["offset"] for each in entries if each["type"] == "record"] == [95, 96, 97, 98, 99]
    assert [each["type"] for each in entries] == ["batch"] + ["record"] * 5
    assert len(cli("log", "dump", log, "--max-entries", "3").succeeded().lines) == 4
    assert "offset" in cli("log", "dump", str(index)).succeeded().out
    assert "cluster.id" in cli("log", "dump", str(stopped.parent / "meta.properties")).succeeded().out

    (report,) = cli("log", "verify", str(stopped), "--records", "--output", "json").succeeded().json
    assert (report["is_sound"], report["records"], report["end_offset"]) == (True, 100, 100)
    assert ": sound, 1 segments, 10 batches, 100 records" in cli("log", "verify", str(stopped.parent)).succeeded().out

    before = index.read_bytes()
    index.unlink()
    cli("log", "verify", str(stopped)).failed("1 of 1 partitions are damaged")
    (rebuilt,) = cli("log", "rebuild-index", str(stopped), "--output", "json").succeeded().json
    assert rebuilt["problem"] is None
    assert rebuilt["index_entries"] > 0
    cli("log", "verify", str(stopped)).succeeded()
    # The tool does not know the topic's index interval, so it may write fewer entries; those it writes are the same.
    after = index.read_bytes()
    assert {after[at : at + 8] for at in range(0, len(after), 8)} <= {
        before[at : at + 8] for at in range(0, len(before), 8)
    }


def test_a_flipped_bit_is_found_and_named(stopped: Path, cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    log = stopped / f"{SEGMENT}.log"
    batch = cli("log", "dump", str(log), "--output", "json").succeeded().json_lines[4]
    content = bytearray(log.read_bytes())
    content[batch["position"] + batch["size"] - 1] ^= 0x40
    log.write_bytes(content)
    verified = cli("log", "verify", str(stopped)).failed("1 of 1 partitions are damaged")
    assert "DAMAGED" in verified.out
    (report,) = cli("log", "verify", str(stopped), "--output", "json").json
    (lost,) = (each for each in report["findings"] if each["first_offset"] is not None)
    assert (lost["first_offset"], lost["end_offset"]) == (40, 50)
    cli("log", "dump", str(log)).failed("places are damaged")


def test_a_running_brokers_indexes_are_left_alone(broker: Broker, cli: Any, topic: str) -> None:
    if broker.is_kafka:
        pytest.skip("the other broker's directory layout is not at hand")
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, "--value", "x").succeeded()
    directory = str(broker.data_dir / f"{topic}-0")
    cli("log", "verify", directory).succeeded()
    cli("log", "rebuild-index", directory).failed("is in use by process")


def test_mistakes(tmp_path: Path, cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    missing = str(tmp_path / "missing")
    cli("log", "dump", missing + ".log").failed("does not exist")
    cli("log", "dump", str(tmp_path)).failed("holds no .log files")
    (tmp_path / "notes.txt").write_text("x")
    cli("log", "dump", str(tmp_path / "notes.txt")).failed("is no file that can be listed")
    cli("log", "verify", missing).failed("is not a directory")
    cli("log", "verify", str(tmp_path)).failed("holds no partition directories")
    cli("log", "rebuild-index", missing).failed("is not a directory")
    cli("log").failed("ACTION", code=2)
