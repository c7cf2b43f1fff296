"""Directories of brokers, and moves between them."""

from __future__ import annotations

from typing import Any

from braidlog.client.admin import log_dirs
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.log_dirs import Replica, ReplicaInfo
from braidlog.core.protocol_errors import (
    KafkaStorageError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from braidlog.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from support.admin_fakes import ScriptedCluster, ScriptedNode, asking

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def test_directories_that_work_and_one_that_does_not() -> None:
    partition = DescribeLogDirsPartition(partition_index=0, partition_size=10, offset_lag=3, is_future_key=True)
    works = DescribeLogDirsResult(
        log_dir="/b",
        topics=[DescribeLogDirsTopic(name="orders", partitions=[partition])],
        total_bytes=5,
        usable_bytes=4,
    )
    answer = DescribeLogDirsResponse(results=[works, DescribeLogDirsResult(log_dir="/a", error_code=56)])
    admin, node = asking({log_dirs.DESCRIBE_LOG_DIRS: answer})
    broken, found = admin.describe_log_dirs()[1]
    assert isinstance(broken.error, KafkaStorageError)
    assert (broken.total_bytes, broken.usable_bytes) == (None, None)
    assert found.replicas == {FIRST: ReplicaInfo(10, 3, True)}
    assert (found.error, found.total_bytes, found.usable_bytes) == (None, 5, 4)
    assert node.asked[0].topics is None
    admin.describe_log_dirs([1], partitions=[FIRST, SECOND])
    assert [(each.topic, each.partitions) for each in node.asked[1].topics] == [("orders", [0, 1])]


def test_copies_are_moved_by_their_brokers() -> None:
    def alter(request: Any) -> AlterReplicaLogDirsResponse:
        partitions = [
            AlterReplicaLogDirPartitionResult(partition_index=number)
            for directory in request.dirs
            for topic in directory.topics
            for number in topic.partitions
        ]
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(topic_name="orders", partitions=partitions)]
        )

    nodes = {number: ScriptedNode({log_dirs.ALTER_REPLICA_LOG_DIRS: alter}) for number in (1, 2)}
    targets = {Replica("orders", 0, 1): "/a", Replica("orders", 1, 1): "/b", Replica("orders", 0, 2): "/c"}
    moved = admin_over(ScriptedCluster(nodes)).alter_replica_log_dirs(targets)
    assert moved == dict.fromkeys(targets)
    assert [each.path for each in nodes[1].asked[0].dirs] == ["/a", "/b"]
    assert [each.path for each in nodes[2].asked[0].dirs] == ["/c"]
    assert str(Replica("orders", 0, 2)) == "orders-0 on broker 2"
