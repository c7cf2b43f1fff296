"""What `cluster status` makes of descriptions; tests/cluster has both commands on a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braidlog.cli.commands.cluster import broker_rows, partition_rows
from braidlog.cli.program import main
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.client.admin.topics import PartitionDescription, TopicDescription
from braidlog.core.types import TopicPartition

UP = {0: BrokerDescription(0, "h", 9092, None), 1: BrokerDescription(1, "::1", 9093, "r1")}


def row(
    partition: PartitionDescription, logs: dict[int, set[TopicPartition]] | None = None, up: Any = UP
) -> dict[str, Any]:
    (found,) = partition_rows([TopicDescription("t", None, False, (partition,))], up, logs or {})
    return found


def states(found: dict[str, Any]) -> dict[int, str]:
    return {replica["broker"]: replica["state"] for replica in found["replicas"]}


def test_all_is_well() -> None:
    found = row(PartitionDescription(0, 1, 4, (1, 0), (0, 1), ()), {0: {TopicPartition("t", 0)}})
    assert (found["topic"], found["partition"], found["leader"], found["state"]) == ("t", 0, 1, "online")
    assert states(found) == {1: "online", 0: "online"}


def test_a_replica_is_behind() -> None:
    found = row(PartitionDescription(0, 1, 4, (1, 0), (1,), ()))
    assert found["state"] == "under-replicated"
    assert states(found) == {1: "online", 0: "not in sync"}


def test_a_broker_or_its_directory_is_down() -> None:
    found = row(PartitionDescription(0, None, 4, (2, 1), (2,), (1,)))
    assert (found["state"], found["leader"]) == ("offline", None)
    assert states(found) == {2: "offline", 1: "offline"}


def test_a_log_is_not_there() -> None:
    found = row(PartitionDescription(3, 0, 4, (0, 1), (0, 1), ()), {0: {TopicPartition("t", 3)}, 1: set()})
    assert found["state"] == "online"
    assert states(found) == {0: "online", 1: "missing"}


def test_a_broker_that_was_killed_just_now_does_not_answer() -> None:
    assert [row["state"] for row in broker_rows([], UP, silent={1})] == ["up", "no answer"]


def test_brokers_that_only_hold_replicas_are_down() -> None:
    partitions = [
        row(PartitionDescription(0, 0, 1, (0, 2), (0,), (2,))),
        row(PartitionDescription(1, 0, 1, (0,), (0,), ())),
    ]
    assert broker_rows(partitions, UP) == [
        {"broker": 0, "address": "h:9092", "rack": None, "state": "up", "leads": 2, "replicas": 2, "not_online": 0},
        {"broker": 1, "address": "[::1]:9093", "rack": "r1", "state": "up", "leads": 0, "replicas": 0, "not_online": 0},
        {"broker": 2, "address": None, "rack": None, "state": "down", "leads": 0, "replicas": 1, "not_online": 1},
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_that_nobody_can_connect_to_is_refused(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "up", "--data", str(tmp_path / "data"), "--listen", f"{host}:9092"]) == 1
    assert f"--listen {host}: brokers tell clients" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
