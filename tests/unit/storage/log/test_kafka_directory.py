"""A partition directory that Apache Kafka wrote: it opens here, and what is rebuilt here is what Kafka wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.peers.kafka import run_tool, start_kafka

from braidlog.core.clock import ManualClock, SystemClock
from braidlog.storage.producers.snapshot_files import decode_snapshot, encode_snapshot
from support.log_kit import Kit, read_all

pytestmark = pytest.mark.peer


def producers(snapshot: bytes) -> list[bytes]:
    """Encoded one by one and sorted: Kafka writes them in the order of a hash map."""
    return sorted(encode_snapshot([entry]) for entry in decode_snapshot(snapshot, "snapshot"))


def test_kafkas_indexes_and_snapshots_are_rebuilt_byte_for_byte(apache_kafka: object, tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    settings = {"log.segment.bytes": "300000", "log.index.interval.bytes": "4096"}
    with start_kafka(data, properties=settings) as kafka:
        created = run_tool(
            "kafka-topics",
            ["--bootstrap-server", kafka.bootstrap, "--create", "--topic", "orders", "--partitions", "1"],
        )
        assert created.returncode == 0, created.stderr
        for codec, size in (("none", "90"), ("lz4", "500"), ("zstd", "2000")):
            load = f"--topic orders --num-records 2000 --record-size {size} --throughput -1".split()
            producer = f"bootstrap.servers={kafka.bootstrap} compression.type={codec} batch.size=3000".split()
            sent = run_tool("kafka-producer-perf-test", [*load, "--producer-props", *producer])
            assert sent.returncode == 0, sent.stderr

    kit = Kit(tmp_path / "ours", segment_bytes=300_000)
    shutil.copytree(data / "orders-0", kit.path)
    written = {path.name: path.read_bytes() for path in kit.path.iterdir()}
    kit.clock = ManualClock(SystemClock().wall_ms())

    log = kit.open(clean=True)
    assert (log.log_end_offset, log.recovery.rebuilt_indexes, len(log.segments) > 3) == (6000, [], True)
    content = read_all(log)
    assert [offset for offset, _ in content] == list(range(6000))
    log.close(flush=False)

    for path in [*kit.path.glob("*index"), *kit.path.glob("*.snapshot")]:
        path.unlink()
    log = kit.open()
    assert read_all(log) == content
    log.close()
    for name, theirs in written.items():
        if name.endswith((".log", ".index", ".timeindex", "checkpoint")):
            assert (kit.path / name).read_bytes() == theirs, name
        if name.endswith(".snapshot"):
            assert producers((kit.path / name).read_bytes()) == producers(theirs) != [], name


def test_what_a_killed_kafka_preallocated_is_no_loss(apache_kafka: object, tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    settings = {"log.segment.bytes": "3000000", "log.preallocate": "true"}
    with start_kafka(data, properties=settings) as kafka:
        created = run_tool("kafka-topics", ["--bootstrap-server", kafka.bootstrap, "--create", "--topic", "orders"])
        assert created.returncode == 0, created.stderr
        load = ["--topic", "orders", "--num-records", "500", "--record-size", "100", "--throughput", "-1"]
        sent = run_tool("kafka-producer-perf-test", [*load, "--producer-props", f"bootstrap.servers={kafka.bootstrap}"])
        assert sent.returncode == 0, sent.stderr
        kafka.kill()
        kit = Kit(tmp_path / "ours", segment_bytes=3_000_000)
        shutil.copytree(data / "orders-0", kit.path)
    assert (kit.path / f"{0:020d}.log").stat().st_size == 3_000_000
    log = kit.open()
    assert [offset for offset, _ in read_all(log)] == list(range(500))
    assert log.recovery.lost == []
    assert log.recovery.blank_bytes == 3_000_000 - log.size
    log.close()
