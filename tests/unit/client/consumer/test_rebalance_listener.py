from __future__ import annotations

from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.core.types import TopicPartition


def test_lost_partitions_are_revoked_ones_unless_told_apart() -> None:
    heard: list[object] = []

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            heard.append(partitions)

    listener = Listener()
    listener.on_partitions_assigned([TopicPartition("t", 0)])
    listener.on_partitions_lost([TopicPartition("t", 0)])
    assert heard == [[TopicPartition("t", 0)]]
