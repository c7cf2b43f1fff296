"""What clients are told of partitions whose data directory failed, as by Kafka 3.9.1, and of a cluster yet unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.handlers.topics.metadata import MetadataHandler, TopicDescriber
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.quotas.mutation_quotas import MutationQuotas
from braidlog.broker.server import Server
from braidlog.cluster.image import ClusterImage, PartitionInfo, TopicImage, no_leader
from braidlog.controller.requests import NewTopic
from braidlog.core.protocol_errors import (
    NONE,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId
from braidlog.net.exchange import Exchange
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.asked_broker import AskedBroker, on_broker_with
from support.authorized_broker import RestrictedBroker, allow_cluster, allow_topic
from support.control_requests import broker, led_by
from support.in_process_server import answer, on_server
from support.offline_directories import PARTITIONS, lose_a_directory, reported

# Broker 2 is reached by other brokers alone; 3 is dead.
BROKERS = {BrokerId(1): broker(1, "CLIENTS", "BROKERS"), BrokerId(2): broker(2, "BROKERS")}


def describe(
    info: PartitionInfo, version: int = 12, listener: str = "CLIENTS", registry: PartitionRegistry | None = None
) -> tuple[int, int, list[int]]:
    """Error, leader, offline replicas."""
    image = ClusterImage(brokers=BROKERS)
    topic = TopicImage("orders", b"i" * 16, (info,))
    describer = TopicDescriber(image, registry or PartitionRegistry(), listener, version)
    (partition,) = describer.describe(topic).partitions
    return partition.error_code, partition.leader_id, partition.offline_replicas


@pytest.mark.parametrize("version", [1, 12])
def test_a_leader_that_is_reached(version: int) -> None:
    assert describe(led_by(1, 3), version) == (NONE, 1, [3])
    assert describe(led_by(2), version, "BROKERS") == (NONE, 2, [])


def test_a_dead_leader_is_none() -> None:
    assert describe(led_by(3, 1)) == (LeaderNotAvailableError.code, -1, [3])
    assert describe(no_leader((BrokerId(1),))) == (LeaderNotAvailableError.code, -1, [])


def test_a_leader_without_the_clients_listener_is_none() -> None:
    assert describe(led_by(2)) == (ListenerNotFoundError.code, -1, [])
    assert describe(led_by(2), version=5) == (LeaderNotAvailableError.code, -1, [])


def test_the_first_version_complains_about_replicas() -> None:
    assert describe(led_by(1, 3), version=0) == (ReplicaNotAvailableError.code, 1, [3])


def test_offline_replicas_as_the_controller_announced_them() -> None:
    assert describe(led_by(1, 2)._replace(offline=(BrokerId(2),))) == (NONE, 1, [2])


def test_a_log_that_was_lost_here_is_offline_before_the_controller_says_so() -> None:
    registry = PartitionRegistry()
    registry.add(Partition("orders", 0, b"i" * 16, 1, TopicMetrics()))
    assert describe(led_by(1, 3), registry=registry) == (LeaderNotAvailableError.code, -1, [1, 3])
    assert describe(led_by(2, 1), listener="BROKERS", registry=registry) == (NONE, 2, [1])


def test_partitions_that_are_not_known_yet_are_left_out() -> None:
    topic = TopicImage("orders", b"i" * 16, (no_leader(()), led_by(1)))
    described = TopicDescriber(ClusterImage(brokers=BROKERS), PartitionRegistry(), "CLIENTS", 12).describe(topic)
    assert [partition.partition_index for partition in described.partitions] == [1]


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


# A broker that has just started


class Announcement:
    """The word of a controller, which comes when a test says so."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._heard = asyncio.Event()

    def come(self) -> None:
        self.image = ClusterImage(brokers=BROKERS)
        self._heard.set()

    def asked(self, within_s: float) -> asyncio.Task[MetadataResponse]:
        """A client's question, on the way to its answer."""
        cache, creation = cast("MetadataCache", self), cast("AutoTopicCreation", None)
        quotas = cast("MutationQuotas", None)
        handler = MetadataHandler(
            cache, PartitionRegistry(), creation, False, NewTopic, self._heard.wait, Authorizer(), quotas, within_s
        )
        exchange = SimpleNamespace(version=12, channel=SimpleNamespace(listener="CLIENTS"))
        request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
        work = handler.handle(request, cast("Exchange", exchange))
        assert isinstance(work, Coroutine)
        return asyncio.create_task(work)


def test_a_broker_that_knows_of_nobody_lets_clients_wait_for_the_controller() -> None:
    async def run() -> None:
        announcement = Announcement()
        asked = announcement.asked(within_s=60.0)
        await asyncio.sleep(0)
        assert not asked.done()
        announcement.come()
        assert [each.node_id for each in (await asked).brokers] == [1]

    asyncio.run(run())


def test_clients_do_not_wait_for_ever_for_a_controller() -> None:
    async def run() -> None:
        response = await Announcement().asked(within_s=0.01)
        assert response.brokers == []
        assert response.topics[0].error_code == UnknownTopicOrPartitionError.code

    asyncio.run(run())


@on_broker_with({"auto.create.topics.enable": "true"})
async def test_topics_are_hidden_unless_they_are_asked_for_by_name(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    hidden_id = await restricted.admin.create("hidden")
    await restricted.admin.create("shown")
    restricted.rules(allow_topic("shown", AclOperation.READ))
    assert await restricted.ask("Metadata", 12, topics=None) == "[shown [0]]"
    named = [{"name": name} for name in ("hidden", "shown", "unknown")]
    refused = "TOPIC_AUTHORIZATION_FAILED"
    assert await restricted.ask("Metadata", 9, topics=named) == f"[hidden {refused}, shown [0], unknown {refused}]"
    by_id = [{"name": None, "topic_id": hidden_id}, {"name": None, "topic_id": b"u" * 16}]
    assert await restricted.ask("Metadata", 12, topics=by_id) == f"[{refused}, UNKNOWN_TOPIC_ID]"


@on_broker_with({"auto.create.topics.enable": "true"})
async def test_creating_on_first_use_takes_a_right_to_create(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    sees = allow_topic("*", AclOperation.DESCRIBE)
    named = [{"name": name} for name in ("one", "two", "not a name")]
    refused = "TOPIC_AUTHORIZATION_FAILED"
    restricted.rules(sees)
    answer = await restricted.ask("Metadata", 9, topics=named)
    assert answer == f"[not a name {refused}, one {refused}, two {refused}]"
    restricted.rules(sees, allow_topic("one", AclOperation.CREATE))
    assert await restricted.ask("Metadata", 9, topics=named) == f"[not a name {refused}, one [0], two {refused}]"
    restricted.rules(sees, allow_cluster(AclOperation.CREATE))
    answer = await restricted.ask("Metadata", 9, topics=named)
    assert answer == "[not a name INVALID_TOPIC_EXCEPTION, one [0], two [0]]"


@on_broker_with({})
async def test_operations_of_each_topic(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.create("one")
    await restricted.admin.create("two")
    restricted.rules(allow_topic("one", AclOperation.WRITE), allow_topic("two", AclOperation.ALTER_CONFIGS))
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = await restricted.ask("Metadata", 10, topics=None, **asked)
    assert answer == "may  [one may DESCRIBE|WRITE [0]]"
