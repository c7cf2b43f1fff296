from __future__ import annotations

from braidlog.cli.replica_states import partition_state, replica_states, states_text
from braidlog.client.admin.topics import PartitionDescription
from braidlog.core.types import TopicPartition

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
