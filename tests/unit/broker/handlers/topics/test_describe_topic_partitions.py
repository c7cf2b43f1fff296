from __future__ import annotations

from pathlib import Path

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import NONE
from braidlog.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from support.in_process_server import answer, on_server
from support.offline_directories import PARTITIONS, lose_a_directory, reported


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
