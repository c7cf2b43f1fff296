from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry


def test_the_registry_knows_partitions_by_name_and_id(partition: Partition) -> None:
    registry = PartitionRegistry()
    registry.add(partition)
    assert registry.get("orders", 0) is partition
    assert registry.get("orders", 1) is None
    assert registry.name_of(b"i" * 16) == "orders"
    with pytest.raises(UnknownTopicOrPartitionError):
        registry.require("orders", 1)
    registry.remove("orders", 0)
    registry.remove("orders", 0)
    assert registry.name_of(b"i" * 16) is None
    assert len(registry) == 0


def test_a_partition_that_another_broker_has_is_not_unknown(partition: Partition) -> None:
    registry = PartitionRegistry()
    registry.add(partition)
    registry.is_known_elsewhere = lambda topic, index: (topic, index) == ("orders", 1)
    registry.name_elsewhere = lambda topic_id: "bills" if topic_id == b"b" * 16 else None
    with pytest.raises(NotLeaderOrFollowerError):
        registry.require("orders", 1)
    with pytest.raises(UnknownTopicOrPartitionError):
        registry.require("orders", 2)
    assert registry.name_of(b"b" * 16) == "bills"
