from __future__ import annotations

from typing import Any

from braidlog.cli.replica_states import broker_rows, partition_rows, partition_state, replica_states, states_text
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.client.admin.topics import PartitionDescription, TopicDescription
from braidlog.core.types import TopicPartition

UP = {0: BrokerDescription(0, "h", 9092, None), 1: BrokerDescription(1, "::1", 9093, "r1")}
HERE = TopicPartition("t", 0)


def test_the_four_states_of_a_replica() -> None:
    partition = PartitionDescription(0, 1, 4, (1, 2, 3, 4, 5), (1,), (4,))
    # 5 is down; 4 is up and its directory failed; what 2 has is not known.
    states = replica_states("t", partition, {1, 2, 3, 4}, {1: {HERE}, 3: {TopicPartition("t", 1)}})
    assert states == {1: "online", 2: "not in sync", 3: "missing", 4: "offline", 5: "offline"}


def test_the_state_of_a_partition() -> None:
    assert partition_state(PartitionDescription(0, None, 4, (1, 2), (1,), (1, 2))) == "offline"
    assert partition_state(PartitionDescription(0, 1, 4, (1, 2), (1,), ())) == "under-replicated"
    assert partition_state(PartitionDescription(0, 1, 4, (1, 2), (2, 1), ())) == "online"


def test_states_for_people() -> None:
    rows = [{"broker": 1, "state": "online"}, {"broker": 2, "state": "not in sync"}]
    assert states_text(rows) == "1 online, 2 not in sync"


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
