from __future__ import annotations

from pathlib import Path
from typing import Any

from braidlog.broker.server import Server
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import NONE
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from support.in_process_server import answer, on_server

PARTITIONS = 4


async def lose_a_directory(server: Server) -> set[int]:
    """The partitions of the topic that lay in it."""
    topic = CreatableTopic(name="records", num_partitions=PARTITIONS, replication_factor=1)
    await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    lost = server.broker.logs.directories[1]
    partitions = {key.partition for key in server.broker.logs.registry.logs_in(lost)}
    assert 0 < len(partitions) < PARTITIONS
    server.broker.logs.failures.fail(StorageFault(lost.path, "the disk broke", OSError(5, "Input/output error")))
    return partitions


def reported(partitions: list[Any]) -> dict[int, tuple[int, int, list[int], list[int], list[int]]]:
    return {
        each.partition_index: (
            each.error_code,
            each.leader_id,
            each.replica_nodes,
            each.isr_nodes,
            each.offline_replicas,
        )
        for each in partitions
    }


def test_describe_topic_partitions_does_so_without_an_error(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        lost = await lose_a_directory(server)
        expected = {
            index: (NONE, -1, [1], [1], [1]) if index in lost else (NONE, 1, [1], [1], [])
            for index in range(PARTITIONS)
        }
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="records")])
        described = await answer(server, "DescribeTopicPartitions", 0, request)
        assert reported(described.topics[0].partitions) == expected

    on_server(tmp_path, check, broker_id="1", log_dirs=f"{tmp_path}/a,{tmp_path}/b")
