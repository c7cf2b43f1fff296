"""A broker's replicas do what a controller asks for, and a topic whose retention.ms is too short is told of, once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.broker.server import Server
from braidlog.cluster.control_requests import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlResponse,
    LeaderAndIsr,
    StopReplica,
)
from braidlog.cluster.image import BrokerInfo, PartitionInfo
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import StorageFault
from braidlog.core.ids import ZERO_ID
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
from braidlog.replication.follower_session import FollowerSession, FollowerTarget
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.storage.dirs import lost_replicas
from braidlog.storage.dirs.lost_replicas import LostReplica, encode_lost_replicas
from braidlog.storage.jobs import InlineExecutor
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support import manager_fixture
from support.control_requests import brokers, leader_and_isr, led_by, stop_replica, topic_id, update_metadata
from support.in_process_server import answer, on_server

P = ParamSpec("P")
T = TypeVar("T")

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
    """Grows as the broker speaks: its lines about retention and formats."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said = record.getMessage()
            if ("retention.ms" in said or "format.version" in said) and record.levelno >= logging.WARNING:
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


def test_an_old_format_without_effect_is_told_of_once(tmp_path: Path, warnings: list[str]) -> None:
    async def check(server: Server) -> None:
        await create(server, "old", {"message.format.version": "0.10.2"})
        await create(server, "new", {"message.format.version": "0.11.0"})
        await alter(server, 2, "old", "flush.ms", "77")
        (reported,) = warnings
        assert reported.startswith("topic old: message.format.version=0.10.2 has no effect")
        await alter(server, 2, "old", "message.format.version", "2.8")
        await alter(server, 2, "old", "message.format.version", "0.10.2")
        assert len(warnings) == 2

    on_server(tmp_path, check)


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
        broker = manager_fixture.Broker(*directories).start()
        self.files = broker.files
        self.logs = broker.manager
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


async def test_followers_hear_of_a_log_whose_first_segments_are_gone(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1, 2)}))
    partition = replicas.registry.require("orders", 0)
    target = FollowerTarget()
    target.follower = FollowerSession(2)
    assert partition.progress is not None
    target.link(partition, partition.progress.remotes[2])
    for listener in replicas.logs.registry.on_log_start_moved:
        listener(TopicPartition("orders", 0))
    assert target.dirty


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


async def test_only_leader_and_isr_and_stop_replica_end_a_role(replicas: Replicas) -> None:
    """As in Kafka: metadata of a newer controller, even if it does not name this broker any more, tells clients."""
    await replicas.send(leader_and_isr("orders", {0: led_by(1, 2)}))
    elsewhere = update_metadata("orders", {0: led_by(2, 1, epoch=1)}, live=brokers(2), controller_epoch=2)
    assert (await replicas.cache.update(elsewhere)).error == NONE
    assert BrokerId(1) not in replicas.cache.image.brokers
    assert replicas.registry.require("orders", 0).leader == 1
    assert replicas.leaderships == [(0, 1)]
    # But its epoch counts from then on: what the old controller still asks for is refused.
    late = await replicas.send(stop_replica("orders", 0, delete=True, controller_epoch=1))
    assert late.error == StaleControllerEpochError.code
    await replicas.send(leader_and_isr("orders", {0: led_by(2, 1, epoch=1)}, controller_epoch=2))
    assert replicas.registry.require("orders", 0).leader == 2
    assert replicas.leaderships == [(0, 1), (0, 2)]


async def test_an_unclean_election_is_worth_a_warning(replicas: Replicas, caplog: pytest.LogCaptureFixture) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1)._replace(leader_recovery_state=1), 1: led_by(1)}))
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("orders-0 was elected though it was not in sync")


async def test_a_topic_of_another_id_does_not_get_the_log(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1)}))
    recreated = leader_and_isr("orders", {0: led_by(1, epoch=9)}, made=1)
    assert await replicas.errors(recreated) == {0: InconsistentTopicIdError.code}
    assert replicas.registry.require("orders", 0).leader_epoch == 0
    await replicas.send(stop_replica("orders", 0, leader_epoch=EPOCH_DURING_DELETE, delete=True))
    assert await replicas.errors(recreated) == {0: NONE}


def strays(directory: Path) -> int:
    return len(list(directory.glob("*/*-stray")))


async def test_a_log_of_another_topic_that_was_found_is_set_aside(replicas: Replicas, tmp_path: Path) -> None:
    replicas.logs.create(TopicPartition("orders", 0), topic_id=b"earlier".ljust(16))
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(1)})) == {0: NONE}
    assert replicas.logs.topic_id(TopicPartition("orders", 0)) == topic_id("orders")
    assert strays(tmp_path) == 1


async def test_a_replica_that_a_deleted_topic_left_behind_is_set_aside(replicas: Replicas, tmp_path: Path) -> None:
    """It was moved away, and the controller that was to tell this broker lost its office before it did."""
    await replicas.send(leader_and_isr("orders", {0: led_by(1)}))
    replicas.cache.add_listener(replicas.manager)
    await replicas.cache.update(update_metadata("orders", {0: led_by(1)}))
    recreated = leader_and_isr("orders", {0: led_by(1, epoch=9)}, made=1)
    assert await replicas.errors(recreated) == {0: InconsistentTopicIdError.code}
    deleted = led_by(1)._replace(leader=LEADER_DURING_DELETE)
    await replicas.cache.update(update_metadata("orders", {0: deleted}))
    assert await replicas.errors(recreated) == {0: NONE}
    assert replicas.registry.require("orders", 0).topic_id == recreated.partitions[0].topic_id
    assert strays(tmp_path) == 1
    # What comes late of the first one changes nothing.
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(1, epoch=3)})) == {
        0: InconsistentTopicIdError.code
    }


def without_ids(request: LeaderAndIsr) -> LeaderAndIsr:
    """As a controller from before topic ids sends it."""
    return request._replace(partitions=[state._replace(topic_id=ZERO_ID) for state in request.partitions])


@pytest.mark.parametrize("epoch", [0, 1])
async def test_a_topic_gets_its_id_from_the_first_controller_that_has_one(replicas: Replicas, epoch: int) -> None:
    key = TopicPartition("orders", 0)
    await replicas.send(without_ids(leader_and_isr("orders", {0: led_by(1)})))
    partition = replicas.registry.require("orders", 0)
    assert (partition.topic_id, replicas.logs.topic_id(key)) == (ZERO_ID, None)
    assert replicas.registry.name_of(ZERO_ID) is None
    # Also where the leader epoch stays.
    upgraded = leader_and_isr("orders", {0: led_by(1, epoch=epoch)})
    topic_id = upgraded.partitions[0].topic_id
    assert await replicas.errors(upgraded) == {0: NONE}
    assert (partition.topic_id, replicas.logs.topic_id(key)) == (topic_id, topic_id)
    assert (partition.leader_epoch, replicas.registry.name_of(topic_id)) == (epoch, "orders")


async def test_a_log_keeps_its_id_under_a_controller_that_knows_of_none(replicas: Replicas) -> None:
    topic_id = b"earlier".ljust(16)
    replicas.logs.create(TopicPartition("orders", 0), topic_id=topic_id)
    assert await replicas.errors(without_ids(leader_and_isr("orders", {0: led_by(1)}))) == {0: NONE}
    assert replicas.registry.require("orders", 0).topic_id == topic_id


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


async def test_a_replica_that_was_moved_away_may_come_back(replicas: Replicas) -> None:
    await replicas.send(leader_and_isr("orders", {0: led_by(1, epoch=3)}))
    await replicas.send(stop_replica("orders", 0, leader_epoch=4, delete=True))
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(2, 1, epoch=5)})) == {0: NONE}
    assert len(replicas.logs.partitions) == 1


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


class WatchedExecutor(InlineExecutor):
    """Counts the pieces of work; `on_work` comes before each."""

    def __init__(self) -> None:
        self.pieces = 0
        self.on_work: Callable[[], None] = lambda: None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.pieces += 1
        self.on_work()
        return super().submit(fn, *args, **kwargs)


async def test_logs_of_new_partitions_are_made_by_the_executors_of_their_directories(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    executors = {directory.path: WatchedExecutor() for directory in replicas.logs.directories}
    monkeypatch.setattr(replicas.logs, "executor_of", executors.__getitem__)
    made_here: list[str] = []
    monkeypatch.setattr(replicas.logs, "_create_in", lambda directory, partition: made_here.append(str(partition)))
    roles = {index: led_by(1, epoch=3) for index in range(120)} | {120: led_by(2, 1)}
    assert set((await replicas.errors(leader_and_isr("orders", roles))).values()) == {NONE}
    assert made_here == []
    # Some at a time, so that whatever else the executor has to do is not kept waiting for all of them.
    assert all(executor.pieces == 3 for executor in executors.values())
    assert sorted(directory.partition_count for directory in replicas.logs.directories) == [60, 61]
    led = replicas.registry.require("orders", 7).require_log()
    assert led.leader_epochs.latest == 3
    assert (Path(led.directory) / "leader-epoch-checkpoint").read_text().split() == ["0", "1", "3", "0"]
    again = leader_and_isr("orders", {index: led_by(1, epoch=4) for index in range(120)})
    assert set((await replicas.errors(again)).values()) == {NONE}
    assert all(executor.pieces == 3 for executor in executors.values())


async def test_a_directory_that_fails_while_a_log_is_made_in_it_loses_that_log(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas.logs.directories

    def fail() -> None:
        if first.is_online:
            replicas.logs.failures.fail(StorageFault(first.path, "it is gone"))

    executor = WatchedExecutor()
    executor.on_work = fail
    monkeypatch.setattr(replicas.logs, "executor_of", lambda path: executor)
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(1)})) == {0: NONE}
    log = replicas.registry.require("orders", 0).require_log()
    assert second.holds(log.directory)
    assert (first.partition_count, second.partition_count) == (0, 1)


async def test_a_log_that_its_executor_cannot_make_is_tried_here_and_its_directory_fails(replicas: Replicas) -> None:
    first, second = replicas.logs.directories
    replicas.files.broken.append(f"{first.path}/orders-0")
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(1)})) == {0: KafkaStorageError.code}
    assert (first.is_online, second.is_online) == (False, True)
    assert (first.partition_count, second.partition_count) == (0, 0)


class NotedFollowers:
    """What fetchers are told, instead of fetchers."""

    def __init__(self) -> None:
        self.followed: dict[int, tuple[int, int, bool]] = {}
        self.leaders: list[BrokerId] = []
        self.idle_ended = 0

    def leaders_named(self, leaders: Mapping[BrokerId, BrokerInfo]) -> None:
        self.leaders += leaders

    def follow(self, partition: Partition, *, unclean: bool = False) -> None:
        self.followed[partition.index] = (partition.leader, partition.leader_epoch, unclean)

    def unfollow(self, key: TopicPartition) -> None:
        self.followed.pop(key.partition, None)

    def end_idle(self) -> None:
        self.idle_ended += 1


async def test_partitions_are_copied_while_another_broker_leads_them(replicas: Replicas) -> None:
    followers = replicas.manager.followers = NotedFollowers()
    await replicas.send(leader_and_isr("orders", {0: led_by(1), 1: led_by(2, 1), 2: led_by(2, 1), 3: led_by(3)}))
    assert followers.followed == {1: (2, 0, False), 2: (2, 0, False)}
    unclean = led_by(3, 1, epoch=1)._replace(leader_recovery_state=1)
    await replicas.send(leader_and_isr("orders", {1: unclean, 2: led_by(1, 2, epoch=1)}))
    assert followers.followed == {1: (3, 1, True)}
    await replicas.send(leader_and_isr("orders", {1: led_by(-1, 1, epoch=2), 2: led_by(2, 1, epoch=2)}))
    assert followers.followed == {2: (2, 2, False)}
    await replicas.send(stop_replica("orders", 2, leader_epoch=2))
    assert followers.followed == {}
    assert followers.idle_ended == 4


async def test_what_lies_in_a_failed_directory_is_not_copied_any_more(replicas: Replicas) -> None:
    followers = replicas.manager.followers = NotedFollowers()
    await replicas.send(leader_and_isr("orders", {0: led_by(2, 1), 1: led_by(2, 1)}))
    replicas.logs.failures.fail(StorageFault(replicas.logs.directories[0].path, "it is gone"))
    (kept,) = followers.followed
    assert replicas.registry.require("orders", kept).log is not None
    assert await replicas.errors(leader_and_isr("orders", {0: led_by(3, 1, epoch=4), 1: led_by(3, 1, epoch=4)})) == {
        kept: NONE,
        1 - kept: KafkaStorageError.code,
    }
    assert followers.followed == {kept: (3, 4, False)}


def replaced(tmp_path: Path, *directories: Path) -> Replicas:
    """The disk of the first one was replaced: the cluster counts on the first two partitions of `orders`."""
    lost = [LostReplica(TopicPartition("orders", each), topic_id("orders")) for each in (0, 1)]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / lost_replicas.FILE_NAME).write_text(encode_lost_replicas(lost))
    return Replicas(tmp_path / "a", *directories)


def counted_on(epoch: int, *isr: int) -> PartitionInfo:
    return led_by(1, 2, epoch=epoch)._replace(isr=tuple(BrokerId(each) for each in isr))


async def test_an_empty_log_does_not_stand_for_one_that_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = replaced(tmp_path)
    roles = {0: counted_on(4, 1), 1: counted_on(4, 1, 2)._replace(leader=BrokerId(2)), 2: counted_on(4, 1)}
    answered = await broker.errors(leader_and_isr("orders", roles, is_new=False))
    # Partition 2 was made later: its log was never here.
    assert answered == {0: KafkaStorageError.code, 1: KafkaStorageError.code, 2: NONE}
    assert [each.index for each in broker.registry.offline_of("orders")] == [0, 1]
    with pytest.raises(KafkaStorageError):
        broker.registry.require("orders", 0).require_log()
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [line.split(":")[0] for line in errors] == ["orders-0 stays offline here", "orders-1 stays offline here"]
    # Out of the ISR it copies what the leader has.
    answered = await broker.errors(leader_and_isr("orders", {0: counted_on(5, 2)._replace(leader=BrokerId(2))}))
    assert answered == {0: NONE}
    assert await broker.errors(leader_and_isr("orders", {0: counted_on(6, 1, 2)}, is_new=False)) == {0: NONE}
    broker.logs.close()


@pytest.mark.parametrize("allowed", [False, True])
async def test_an_unclean_election_begins_with_an_empty_log(tmp_path: Path, allowed: bool) -> None:
    broker = replaced(tmp_path)
    await broker.send(leader_and_isr("orders", {0: counted_on(4, 1)}, is_new=False))
    role = counted_on(5, 1)
    if allowed:
        await broker.cache.update_configs({"topics/orders": {"unclean.leader.election.enable": "true"}})
    else:
        role = role._replace(leader_recovery_state=1)
    assert await broker.errors(leader_and_isr("orders", {0: role}, is_new=False)) == {0: NONE}
    assert broker.registry.require("orders", 0).require_log().log_end_offset == 0
    broker.logs.close()


async def test_what_is_not_lost_with_the_disk_is_served(tmp_path: Path) -> None:
    """A replica in another directory, the only one of its partition, one of a topic that was made again."""
    before = manager_fixture.Broker(tmp_path / "b").start()
    before.manager.create(TopicPartition("orders", 0), topic_id=topic_id("orders"))
    before.manager.close()
    broker = replaced(tmp_path, tmp_path / "b")
    alone = led_by(1, epoch=4)
    assert await broker.errors(leader_and_isr("orders", {0: counted_on(4, 1), 1: alone}, is_new=False)) == {
        0: NONE,
        1: NONE,
    }
    broker.logs.close()


async def test_a_topic_that_was_made_again_has_lost_nothing(tmp_path: Path) -> None:
    broker = replaced(tmp_path)
    again = leader_and_isr("orders", {0: counted_on(4, 1)}, made=1, is_new=False)
    assert await broker.errors(again) == {0: NONE}
    broker.logs.close()
