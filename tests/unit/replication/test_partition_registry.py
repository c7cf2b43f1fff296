from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    UnknownTopicOrPartitionError,
)
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from support.partitions import Waiter


def test_the_registry_knows_partitions_by_name_and_id(partition: Partition) -> None:
    registry = PartitionRegistry()
    registry.add(partition)
    assert registry.get("orders", 0) is partition
    assert registry.get("orders", 1) is None
    assert registry.name_of(b"i" * 16) == "orders"
    with pytest.raises(UnknownTopicOrPartitionError):
        registry.require("orders", 1)
    waiter = Waiter(1)
    waiter.watch(partition)
    assert registry.remove_topic("orders") == [partition]
    assert waiter.wakes == 1
    assert registry.name_of(b"i" * 16) is None
    assert len(registry) == 0
