"""What clients that ask the wrong broker are told: as Apache Kafka 3.9 has it, by topic, by partition or as a whole."""

from __future__ import annotations

from pathlib import Path

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import NONE, NotControllerError
from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.wire.generated.list_partition_reassignments import ListPartitionReassignmentsRequest
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from support.in_process_server import answer, on_server

REFUSED = NotControllerError.code


def test_only_the_controller_changes_topics_but_any_broker_changes_configs(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        create = CreateTopicsRequest(topics=[CreatableTopic(name="old", num_partitions=1, replication_factor=1)])
        assert (await answer(server, "CreateTopics", 7, create)).topics[0].error_code == NONE
        server.broker.controller.session_lost()

        create = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
        for version in (2, 7):
            created = await answer(server, "CreateTopics", version, create)
            assert [(each.name, each.error_code) for each in created.topics] == [("new", REFUSED)]
        deleted = await answer(server, "DeleteTopics", 3, DeleteTopicsRequest(topic_names=["old"]))
        assert [(each.name, each.error_code) for each in deleted.responses] == [("old", REFUSED)]
        deleted = await answer(server, "DeleteTopics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(name="old")]))
        assert [(each.name, each.error_code) for each in deleted.responses] == [("old", REFUSED)]
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="old", count=2)])
        grown = await answer(server, "CreatePartitions", 3, more)
        assert [(each.name, each.error_code) for each in grown.results] == [("old", REFUSED)]

        named = TopicPartitions(topic="old", partitions=[0])
        elected = await answer(server, "ElectLeaders", 2, ElectLeadersRequest(topic_partitions=[named]))
        assert elected.error_code == NONE
        (topic,) = elected.replica_election_results
        assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [(0, REFUSED)]
        everything = await answer(server, "ElectLeaders", 2, ElectLeadersRequest(topic_partitions=None))
        assert (everything.error_code, everything.replica_election_results) == (REFUSED, [])
        moves = [ReassignableTopic(name="old", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
        moved = await answer(server, "AlterPartitionReassignments", 0, AlterPartitionReassignmentsRequest(topics=moves))
        assert (moved.error_code, moved.responses) == (REFUSED, [])
        listed = await answer(server, "ListPartitionReassignments", 0, ListPartitionReassignmentsRequest(topics=None))
        assert (listed.error_code, listed.topics) == (REFUSED, [])

        resource = AlterConfigsResource(
            resource_type=2,
            resource_name="old",
            configs=[AlterableConfig(name="retention.ms", config_operation=0, value="1234")],
        )
        altered = await answer(
            server, "IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource])
        )
        assert altered.responses[0].error_code == NONE
        log = server.broker.registry.require("old", 0).require_log()
        assert log.settings.retention_ms == 1234

    on_server(tmp_path, check, broker_id="1")


def test_a_topic_that_another_controller_is_to_make_has_no_leader_yet(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        server.broker.controller.session_lost()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        metadata = await answer(server, "Metadata", 12, asked)
        assert [(each.name, each.error_code) for each in metadata.topics] == [("new", 5)]
        assert "new" in await server.broker.session.children("/brokers/topics")

    on_server(tmp_path, check, broker_id="1")
