"""A broker's replicas do what a controller asks for, and a topic whose retention.ms is too short is told of, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.broker.server import Server
from braidlog.cluster.control_requests import EPOCH_DURING_DELETE, ControlResponse, LeaderAndIsr, StopReplica
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import (
    NONE,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support import manager_fixture
from support.control_requests import leader_and_isr, led_by, stop_replica
from support.in_process_server import answer, on_server

SHORT = {"retention.ms": "1000", "message.timestamp.before.max.ms": "5000"}


async def create(server: Server, name: str, configs: dict[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=3,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    created = await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert created.topics[0].error_code == 0


async def alter(server: Server, kind: int, name: str, key: str, value: str) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    altered = await answer(server, "IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert altered.responses[0].error_code == 0, altered.responses[0].error_message


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Grows as the broker speaks: its lines about retention."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "retention.ms" in record.getMessage() and record.levelno >= logging.WARNING:
                lines.append(record.getMessage())

    partitions = logging.getLogger("braidlog.partitions")
    handler = Keep()
    partitions.addHandler(handler)
    yield lines
    partitions.removeHandler(handler)


def test_at_creation_at_a_change_and_at_a_start(tmp_path: Path, warnings: list[str]) -> None:
    async def first(server: Server) -> None:
        await create(server, "fine", {"retention.ms": "5000", "message.timestamp.before.max.ms": "5000"})
        await create(server, "unbounded", {"retention.ms": "1000"})
        assert warnings == []
        await create(server, "short", SHORT)
        (reported,) = warnings
        assert reported.startswith("topic short: retention.ms (1000) is below message.timestamp.before.max.ms (5000)")
        await alter(server, 2, "short", "flush.ms", "77")
        assert len(warnings) == 1, "nothing has changed that matters"
        await alter(server, 2, "short", "retention.ms", "2000")
        assert "retention.ms (2000)" in warnings[1]
        await alter(server, 2, "fine", "message.timestamp.difference.max.ms", "9000")
        assert len(warnings) == 2, "the newer setting of the two counts"

    async def second(server: Server) -> None:
        assert len(warnings) == 3
        assert "topic short: retention.ms (2000)" in warnings[2]

    on_server(tmp_path, first)
    on_server(tmp_path, second)


def test_topics_that_only_inherit_are_told_of_together(tmp_path: Path, warnings: list[str]) -> None:
    async def check(server: Server) -> None:
        for name in ("a", "b", "c"):
            await create(server, name, {})
        await alter(server, 4, "", "log.message.timestamp.before.max.ms", "700000000")
        (reported,) = warnings
        assert reported.startswith("topics with the broker's defaults: retention.ms (604800000) is below")
        await alter(server, 4, "", "log.message.timestamp.before.max.ms", "600000000")
        assert len(warnings) == 1

    on_server(tmp_path, check)


class Replicas:
    """Broker 1 with its logs; the test is the controller."""

    def __init__(self, *directories: Path) -> None:
        epochs = ControlEpochs(lambda: 7)
        self.registry = PartitionRegistry()
        self.cache = MetadataCache("cluster", epochs)
        self.logs = manager_fixture.Broker(*directories).start().manager
        settings = DynamicBrokerSettings(BrokerSettings({}))
        self.manager = ReplicaManager(BrokerId(1), self.registry, settings, self.cache, epochs)
        self.manager.attach(self.logs)
        self.manager.on_leadership_change.append(self._leadership_changed)
        self.leaderships: list[tuple[int, int]] = []

    def _leadership_changed(self, partition: Partition) -> None:
        self.leaderships.append((partition.index, partition.leader))

    async def send(self, request: LeaderAndIsr | StopReplica) -> ControlResponse:
        if isinstance(request, LeaderAndIsr):
            return await self.manager.become_leader_or_follower(request)
        return await self.manager.stop_replicas(request)

    async def errors(self, request: LeaderAndIsr | StopReplica) -> dict[int, int]:
        response = await self.send(request)
        assert response.error == NONE
        return {partition.partition: error for partition, error in response.partitions.items()}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path / "a", tmp_path / "b")
    yield made
    made.logs.close()


async def test_a_broker_leads_and_follows_what_it_is_told_to(replicas: Replicas) -> None:
    answered = await replicas.errors(leader_and_isr("orders", {0: led_by(1), 1: led_by(2, 1), 2: led_by(2)}))
    assert answered == {0: NONE, 1: NONE, 2: UnknownTopicOrPartitionError.code}
    assert replicas.registry.require("orders", 0).require_log().log_end_offset == 0
    follower = replicas.registry.require("orders", 1)
    assert follower.log is not None
    with pytest.raises(NotLeaderOrFollowerError):
        follower.require_log()
    assert replicas.registry.get("orders", 2) is None
    assert replicas.leaderships == [(0, 1), (1, 2)]


async def test_a_leader_epoch_is_obeyed_once(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1, 2, epoch=4)}))
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(2, 1, epoch=3)})) == {
        0: StaleControllerEpochError.code
    }
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(2, 1, epoch=4)})) == {0: NONE}
    assert replicas.registry.require("orders", 0).leader == 1
    assert replicas.leaderships == [(0, 1)]
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(2, 1, epoch=5)})) == {0: NONE}
    assert replicas.registry.require("orders", 0).leader == 2
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(2, epoch=6)})) == {
        0: UnknownTopicOrPartitionError.code
    }
    assert replicas.leaderships[1:] == [(0, 2), (0, -1)]


async def test_requests_of_another_time_are_refused_as_a_whole(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1)}, controller_epoch=4))
    for request, error in [
        (leader_and_isr("late", {0: led_by(1)}, controller_epoch=3), StaleControllerEpochError.code),
        (stop_replica("orders", 0, delete=True, controller_epoch=3), StaleControllerEpochError.code),
        (leader_and_isr("late", {0: led_by(1)}, controller_epoch=4, broker_epoch=6), StaleBrokerEpochError.code),
        (stop_replica("orders", 0, delete=True, controller_epoch=4, broker_epoch=6), StaleBrokerEpochError.code),
    ]:
        assert await replicas.send(request) == ControlResponse(error)
    assert replicas.registry.topics() == ["orders"]
    assert replicas.registry.require("orders", 0).leader == 1


async def test_a_topic_of_another_id_does_not_get_the_log(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1)}))
    recreated = leader_and_isr("orders", {0: led_by(1, epoch=9)}, made=1)
    assert await replicas.errors(recreated) == {0: InconsistentTopicIdError.code}
    assert replicas.registry.require("orders", 0).leader_epoch == 0
    await replicas.send(stop_replica("orders", 0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
    assert await replicas.errors(recreated) == {0: NONE}


async def test_a_log_of_another_topic_that_was_found_is_not_served(replicas: Replicas) -> None:
    replicas.logs.create(TopicPartition("orders", 0), topic_id=b"earlier".ljust(16))
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(1)})) == {0: InconsistentTopicIdError.code}
    assert replicas.registry.get("orders", 0) is None


async def test_with_a_directory_offline_only_a_new_replica_gets_a_log(replicas: Replicas) -> None:
    lost = replicas.logs.directories[1]
    await replicas.send(leader_and_isr("orders", {0: led_by(1), 1: led_by(1)}))
    gone = [key.partition for key in replicas.logs.registry.logs_in(lost)]
    replicas.logs.failures.fail(StorageFault(lost.path, "the disk broke", OSError(5, "Input/output error")))
    answered = await replicas.errors(leader_and_isr("orders", {0: led_by(1), 1: led_by(1)}))
    assert answered == {index: KafkaStorageError.code if index in gone else NONE for index in (0, 1)}
    assert await replicas.errors(leader_and_isr("bills", {0: led_by(1)}, is_new=False)) == {0: KafkaStorageError.code}
    assert await replicas.errors(leader_and_isr("new", {0: led_by(1)})) == {0: NONE}
    answered = await replicas.errors(stop_replica("orders", 0, 1, delete=True))
    assert answered == {index: KafkaStorageError.code if index in gone else NONE for index in (0, 1)}
    assert await replicas.errors(stop_replica("orders", 0, 1, delete=True)) == answered


async def test_stopping_ends_the_role_and_keeps_the_log(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1, epoch=3)}))
    assert await replicas.errors(stop_replica("orders", 0, leader_epoch=2)) == {0: FencedLeaderEpochError.code}
    assert replicas.registry.require("orders", 0).leader == 1
    assert await replicas.errors(stop_replica("orders", 0, 5, leader_epoch=3)) == {0: NONE, 5: NONE}
    assert replicas.leaderships == [(0, 1), (0, -1)]
    assert replicas.logs.get(TopicPartition("orders", 0)) is not None
    with pytest.raises(NotLeaderOrFollowerError):
        replicas.registry.require("orders", 0).require_log()


async def test_deleting_is_idempotent_and_reaches_logs_without_a_role(replicas: Replicas) -> None:
    replicas.logs.create(TopicPartition("found", 0))
    await replicas.send(leader_and_isr("orders", {0: led_by(1, epoch=3), 1: led_by(1, epoch=3)}))
    for _ in range(2):
        request = stop_replica("orders", 0, 1, leader_epoch=EPOCH_DURING_DELETE, delete=True)
        assert await replicas.errors(request) == {0: NONE, 1: NONE}
    assert await replicas.errors(stop_replica("found", 0, delete=True)) == {0: NONE}
    assert replicas.logs.partitions == []
    assert replicas.registry.topics() == []
    assert replicas.manager.meters == {}


async def test_a_log_is_made_with_the_overrides_of_its_topic(replicas: Replicas) -> None:
    async def read(names: object) -> None:
        await replicas.cache.update_configs({"topics/orders": {"retention.ms": "1234"}})

    replicas.cache.read_topic_configs = read
    replicas.cache.add_listener(replicas.manager)
    await replicas.send(leader_and_isr("orders", {0: led_by(1)}))
    log = replicas.registry.require("orders", 0).require_log()
    assert log.settings.retention_ms == 1234
    await replicas.cache.update_configs({"topics/orders": {}})
    assert log.settings.retention_ms != 1234
