"""What clients are told of partitions whose data directory failed: as Apache Kafka 3.9.1 did when it was asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from braidlog.broker.server import Server
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import NONE, LeaderNotAvailableError
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
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


def test_metadata_names_no_leader_and_the_offline_replica(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        lost = await lose_a_directory(server)
        here = (NONE, 1, [1], [1], [])
        gone = (LeaderNotAvailableError.code, -1, [1], [1], [1])
        expected = {index: gone if index in lost else here for index in range(PARTITIONS)}
        for topics in ([MetadataRequestTopic(name="records")], None):
            metadata = await answer(server, "Metadata", 12, MetadataRequest(topics=topics))
            assert reported(metadata.topics[0].partitions) == expected
            assert metadata.topics[0].error_code == NONE

    on_server(tmp_path, check, broker_id="1", log_dirs=f"{tmp_path}/a,{tmp_path}/b")
