"""A server that loses a data directory, and what is said of its partitions."""

from __future__ import annotations

from typing import Any

from braidlog.broker.server import Server
from braidlog.core.errors import StorageFault
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from support.in_process_server import answer

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
