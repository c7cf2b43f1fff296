"""What clients are told of partitions whose data directory failed: as Apache Kafka 3.9.1 did when it was asked."""

from __future__ import annotations

from pathlib import Path

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import NONE, LeaderNotAvailableError
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from support.in_process_server import answer, on_server
from support.offline_directories import PARTITIONS, lose_a_directory, reported


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
