from __future__ import annotations

from pathlib import Path

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import NONE
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_topic
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


@on_broker
async def test_pages_are_of_what_may_be_described(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    for name in ("a", "b", "c", "d"):
        await restricted.admin.create(name, 2)
    restricted.rules(*(allow_topic(name, AclOperation.DESCRIBE) for name in ("b", "d")))
    answer = await restricted.ask("DescribeTopicPartitions", 0, topics=[], response_partition_limit=3)
    assert answer == "[b may DESCRIBE [0, 1], d may DESCRIBE [0]]"
    named = [{"name": name} for name in ("a", "b", "c", "d")]
    answer = await restricted.ask("DescribeTopicPartitions", 0, topics=named, response_partition_limit=2)
    refused = "TOPIC_AUTHORIZATION_FAILED"
    assert answer == f"[a {refused}, b may DESCRIBE [0, 1], c {refused}]", "the page is full, the refusals are complete"
