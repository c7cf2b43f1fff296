"""What brokers hold and who they are: topics offsets and sizes, delete-records, brokers, log-dirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker, start_braidlog
from support.ports import lasting_port


@pytest.fixture
def filled(cli: Any, topic: str) -> str:
    """A topic with ten records in partition 0, a second apart, and none in partition 1."""
    cli("topics", "create", topic, "--partitions", "2", "--topic-config", "retention.ms=-1").succeeded()
    lines = "".join(
        json.dumps({"value": f"record {number}", "timestamp": 1_700_000_000_000 + 1000 * number}) + "\n"
        for number in range(10)
    )
    cli("produce", topic, "--partition", "0", "--input", "json", stdin=lines).succeeded()
    return topic


def test_offsets(cli: Any, filled: str) -> None:
    rows = cli("topics", "offsets", filled, "--output", "json").succeeded().json
    assert rows == [
        {"topic": filled, "partition": 0, "earliest": 0, "latest": 10, "records": 10},
        {"topic": filled, "partition": 1, "earliest": 0, "latest": 0, "records": 0},
    ]
    table = cli("topics", "offsets", f"{filled}:0").succeeded().lines
    assert table[0].split() == ["TOPIC", "PARTITION", "EARLIEST", "LATEST", "RECORDS"]
    assert [line.split() for line in table[1:]] == [[filled, "0", "0", "10", "10"]]


def test_offsets_at_a_time(cli: Any, filled: str) -> None:
    at = ("--at", "2023-11-14T22:13:24.5Z")
    first, empty = cli("topics", "offsets", filled, *at, "--output", "json").succeeded().json
    assert (first["offset_at"], first["timestamp_ms"]) == (5, 1_700_000_005_000)
    assert (empty["offset_at"], empty["timestamp_ms"]) == (None, None)
    line = cli("topics", "offsets", f"{filled}:0", *at).succeeded().lines[1]
    assert line.split()[-2:] == ["5", "2023-11-14T22:13:25.000+00:00"]


def test_offsets_of_what_is_not_there(cli: Any, filled: str) -> None:
    cli("topics", "offsets", f"{filled}-missing").failed("[UNKNOWN_TOPIC_OR_PARTITION]")
    cli("topics", "offsets", f"{filled}:7").failed("has no partition 7; it has 2")
    cli("topics", "offsets", f"{filled}:x").failed("is not a partition", code=2)


def test_sizes(cli: Any, filled: str) -> None:
    (described,) = cli("topics", "describe", filled, "--sizes", "--output", "json").succeeded().json
    full, empty = (each["size_bytes"] for each in described["partitions"])
    assert full > 100
    assert empty == 0
    listed = cli("topics", "list", "--sizes", "--output", "json").succeeded().json
    assert {row["topic"]: row["size_bytes"] for row in listed}[filled] == full
    table = cli("topics", "list", "--sizes").succeeded().lines
    assert table[0].split()[-1] == "SIZE"
    assert f"{full} B" in next(line for line in table if line.startswith(f"{filled} "))
    assert "SIZE" not in cli("topics", "list").succeeded().lines[0]


def test_records_are_deleted_only_when_told_to(cli: Any, filled: str) -> None:
    planned = cli("delete-records", f"{filled}:0:4", "--output", "json").succeeded()
    wanted = {"topic": filled, "partition": 0, "earliest": 0, "latest": 10, "new_earliest": 4, "records": 4}
    assert planned.json == [wanted]
    assert "nothing was deleted; --execute does it" in planned.err
    assert cli("topics", "offsets", f"{filled}:0", "--output", "json").json[0]["earliest"] == 0

    done = cli("delete-records", f"{filled}:0:4", "--execute").succeeded()
    assert done.err == ""
    assert done.lines[1].split() == [filled, "0", "0", "10", "4", "4"]
    assert cli("topics", "offsets", f"{filled}:0", "--output", "json").json[0]["earliest"] == 4
    read = cli("consume", filled, "--offset", "earliest", "--exit-at-end").succeeded()
    assert read.lines == [f"record {number}" for number in range(4, 10)]
    # What is gone already is no mistake.
    assert cli("delete-records", f"{filled}:0:2", "--execute", "--output", "json").succeeded().json[0]["records"] == 0


def test_records_older_than_a_time_and_all_of_them(cli: Any, filled: str, tmp_path: Path) -> None:
    before = ("--before", "2023-11-14T22:13:23Z", "--execute")
    rows = cli("delete-records", filled, *before, "--output", "json").succeeded().json
    assert [(row["partition"], row["new_earliest"]) for row in rows] == [(0, 3), (1, 0)]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 0, "offset": 6}], "version": 1}))
    cli("delete-records", "--offset-json-file", str(file), "--execute").succeeded()
    assert cli("topics", "offsets", f"{filled}:0", "--output", "json").json[0]["earliest"] == 6
    cli("delete-records", f"{filled}:0:end", "--execute").succeeded()
    assert cli("topics", "offsets", f"{filled}:0", "--output", "json").json[0]["earliest"] == 10
    cli("delete-records", filled, "--all", "--execute").succeeded()


def test_what_delete_records_refuses(cli: Any, filled: str, tmp_path: Path) -> None:
    cli("delete-records").failed("say what to delete")
    cli("delete-records", filled).failed("say how much of topic")
    cli("delete-records", f"{filled}:0:11", "--execute").failed("ends at offset 10")
    cli("delete-records", f"{filled}:0:1", f"{filled}:0:2", "--execute").failed("named twice")
    cli("delete-records", f"{filled}-missing:0:1").failed("[UNKNOWN_TOPIC_OR_PARTITION]")
    cli("delete-records", f"{filled}:0:1:2").failed("TOPIC:PARTITION:OFFSET", code=2)
    cli("delete-records", f"{filled}:0:{10**22}").failed("is not an offset", code=2)
    file = tmp_path / "offsets.json"
    for content in ("", "[]", "{}", '{"partitions": [1]}', '{"partitions": [{"topic": 1, "partition": 0}]}'):
        file.write_text(content)
        cli("delete-records", "--offset-json-file", str(file)).failed("is not what kafka-delete-records takes")
    cli("delete-records", "--offset-json-file", str(tmp_path / "none")).failed("No such file")
    compacted = f"{filled}-compacted"
    cli("topics", "create", compacted, "--topic-config", "cleanup.policy=compact").succeeded()
    cli("produce", compacted, "--value", "v", "--key", "k").succeeded()
    cli("delete-records", f"{compacted}:0:end", "--execute").failed("[POLICY_VIOLATION]")


def test_brokers(cli: Any, broker: Broker) -> None:
    (row,) = cli("brokers", "--output", "json").succeeded().json
    assert row["address"] == broker.bootstrap
    assert row["reachable"] is True
    assert row["controller"] is True
    assert row["apis"] > 40
    assert row["answer_ms"] > 0
    table = cli("brokers", str(row["broker"])).succeeded().lines
    assert table[0].split() == ["BROKER", "ADDRESS", "RACK", "CONTROLLER", "REACHABLE", "ANSWER-MS", "APIS", "VERSION"]
    assert table[1].split()[:5] == [str(row["broker"]), broker.bootstrap, "-", "yes", "yes"]
    versions = cli("brokers", "--api-versions", "--output", "json").succeeded().json
    assert {each["name"]: each["oldest"] for each in versions}["Fetch"] >= 0
    cli("brokers", "4711").failed("there is no broker 4711 in this cluster")


def test_log_dirs(cli: Any, filled: str, broker: Broker) -> None:
    (row,) = cli("log-dirs", "--output", "json").succeeded().json
    assert Path(row["directory"]).samefile(broker.data_dir) or broker.is_kafka
    assert row["state"] == "online"
    assert row["replicas"] >= 2
    assert 0 < row["usable_bytes"] < row["total_bytes"]
    replicas = cli("log-dirs", "--topic", f"{filled}:0", "--output", "json").succeeded().json
    assert [(each["topic"], each["partition"], each["offset_lag"], each["future"]) for each in replicas] == [
        (filled, 0, 0, False)
    ]
    every = cli("log-dirs", "--broker", str(row["broker"]), "--partitions").succeeded().lines
    assert every[0].split() == ["BROKER", "DIRECTORY", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "FUTURE"]
    assert sum(f" {filled} " in line for line in every) == 2
    cli("log-dirs", "--broker", "4711").failed("there is no broker 4711 in this cluster")


def test_a_broker_at_an_address_that_clients_cannot_use(cli_of: Callable[[None], Any], tmp_path: Path) -> None:
    """Reachable is what clients can reach: the address that the broker tells them."""
    port = lasting_port()
    with start_braidlog(tmp_path / "data", {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}, port=port):
        done = cli_of(None)("brokers", "--bootstrap", f"127.0.0.1:{port}", "--output", "json")
    assert done.code == 1
    assert [row["reachable"] for row in done.json] == [False]
    assert "no broker answers at 127.0.0.1:1" in done.err
