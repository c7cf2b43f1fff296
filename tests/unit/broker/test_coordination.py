"""How a broker enters a cluster on ZooKeeper; a session of the embedded store stands for one of ZooKeeper's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from braidlog.broker import coordination
from braidlog.broker.coordination import (
    BrokerRegistration,
    ClusterMembers,
    Coordination,
    SharedCoordination,
    announce_failed_directory,
    let_others_lead,
    make_coordination,
)
from braidlog.broker.environment import system_environment
from braidlog.cluster import paths, records, registration
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.features import MARKER, NEWEST
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta
from braidlog.cluster.loading import InSyncReplica
from braidlog.cluster.records import BrokerRecord, FeaturesRecord
from braidlog.cluster.registration import register
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import StoreUnavailableError
from braidlog.cluster.store_client import CurrentSession, StoreClient
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import ManualClock
from braidlog.core.errors import UserError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, Endpoint, TopicPartition
from braidlog.metrics import MetricsRegistry
from braidlog.storage.dirs.log_manager import LogManager
from support.memory_journal import MemoryJournalFiles

NEW_ID = bytes(range(16))
ENDPOINTS = (Endpoint("PLAINTEXT", "h", 9092),)
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT"}


class Directories:
    """What the data directories remember of their last life."""

    def __init__(self, cluster: str | None = None, node: int | None = None) -> None:
        self._cluster = cluster
        self._node = node

    def stored_cluster_id(self) -> str | None:
        return self._cluster

    def stored_node_id(self) -> int | None:
        return self._node


class Scene:
    def __init__(self) -> None:
        self.store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        self.client = StoreClient(self.store.open_session)
        self.coordination = SharedCoordination("zookeeper.connect=z:2181/kafka", self.client, lambda: NEW_ID)
        self.session = CurrentSession(self.client)

    async def identity(self, directories: Directories, **settings: str) -> tuple[str, BrokerId]:
        given = BrokerSettings({key.replace("_", "."): value for key, value in settings.items()})
        return await self.coordination.identity(given, cast("LogManager", directories))

    async def expire(self) -> None:
        session = self.client.session
        assert isinstance(session, EmbeddedSession)
        await self.store.expire(session)


async def announced(members: ClusterMembers, *ids: int) -> bool:
    """What is known of the brokers once they were looked at."""
    brokers = {BrokerId(each): BrokerInfo(BrokerId(each), -1, ENDPOINTS) for each in ids}
    await members.image_changed(ClusterImage(), ImageDelta(brokers=brokers))
    await asyncio.gather(*(task for task in asyncio.all_tasks() if "features" in task.get_name()))
    return members.all_ours


def on_scene(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            scene = Scene()
            await scene.coordination.open()
            await body(scene)
            await scene.coordination.close()

        asyncio.run(run())

    return test


def made(**texts: str) -> Coordination:
    settings = BrokerSettings({key.replace("_", "."): value for key, value in texts.items()})
    logs = cast("LogManager", SimpleNamespace(directories=[SimpleNamespace(path="/data/worker-1")]))
    return make_coordination(settings, logs, system_environment(), MetricsRegistry(), print)


def test_which_store_there_is() -> None:
    on_socket = made(braidlog_store_socket="/run/store.sock")
    assert isinstance(on_socket, SharedCoordination)
    assert on_socket.is_cluster
    with pytest.raises(UserError, match="name two stores: leave out one"):
        made(braidlog_store_socket="/run/store.sock", zookeeper_connect="z:2181")


@on_scene
async def test_the_first_broker_names_the_cluster_and_finalises_its_features(scene: Scene) -> None:
    cluster, broker_id = await scene.identity(Directories(), broker_id="3")
    assert broker_id == 3
    assert await scene.identity(Directories(cluster), broker_id="4") == (cluster, 4)
    node = await scene.session.get(paths.FEATURE)
    assert records.decode_features(paths.FEATURE, node.data) == FeaturesRecord(True, NEWEST)


@on_scene
async def test_in_a_cluster_that_others_began_features_stay_as_they_are(scene: Scene) -> None:
    await registration.prepare_store(scene.session)
    cluster = await registration.cluster_id(scene.session, lambda: NEW_ID)
    assert await scene.identity(Directories(), broker_id="3") == (cluster, 3)
    node = await scene.session.get(paths.FEATURE)
    assert node.data == b'{"features":{},"version":2,"status":1}'


@on_scene
async def test_a_broker_of_another_kind_that_came_first_makes_the_cluster_theirs(scene: Scene) -> None:
    """It has registered, and not got to the id of the cluster yet."""
    await registration.prepare_store(scene.session)
    await register(scene.store.connect(), BrokerId(10), BrokerRecord(ENDPOINTS, PROTOCOLS))
    await scene.identity(Directories(), broker_id="3")
    node = await scene.session.get(paths.FEATURE)
    assert records.decode_features(paths.FEATURE, node.data) == FeaturesRecord(True, {})


@on_scene
async def test_a_broker_id_is_configured_stored_or_new(scene: Scene) -> None:
    assert (await scene.identity(Directories(node=5)))[1] == 5
    first = (await scene.identity(Directories()))[1]
    # Unlike a broker that is alone, the next one is another broker.
    assert (await scene.identity(Directories()))[1] == first + 1
    with pytest.raises(UserError, match=r"set broker\.id"):
        await scene.identity(Directories(), broker_id_generation_enable="false")


@on_scene
async def test_directories_of_another_cluster_are_refused_and_nothing_is_written(scene: Scene) -> None:
    before = scene.store.zxid
    with pytest.raises(UserError, match=r"there is none at zookeeper\.connect=z:2181/kafka"):
        await scene.identity(Directories("AAAAAAAAAAAAAAAAAAAAAA"))
    assert scene.store.zxid == before
    await scene.identity(Directories(), broker_id="1")
    before = scene.store.zxid
    with pytest.raises(UserError, match=r"correct zookeeper\.connect or log\.dirs"):
        await scene.identity(Directories("AAAAAAAAAAAAAAAAAAAAAA"))
    assert scene.store.zxid == before


@on_scene
async def test_a_new_session_is_a_new_registration(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="1")
    epochs: list[int] = []
    fatal: list[Exception] = []
    again = asyncio.Event()

    def registered(epoch: int) -> None:
        epochs.append(epoch)
        if len(epochs) == 2:
            again.set()

    record = BrokerRecord(ENDPOINTS, PROTOCOLS)
    ours = BrokerRegistration(BrokerId(1), lambda: record, registered, fatal.append)
    await ours.register(scene.session)
    scene.client.add_listener(ours)
    await scene.expire()
    await again.wait()
    assert epochs[1] > epochs[0]
    # Another broker takes the id: this one must not go on.
    other = scene.store.connect()
    await scene.session.delete(paths.broker(1))
    await register(other, BrokerId(1), record)
    await ours.session_opened(scene.client.session)
    assert "broker id 1 is registered by another broker" in str(fatal[0])


@on_scene
async def test_features_are_ours_to_offer_only_among_our_own(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="1")
    await register(scene.session, BrokerId(1), BrokerRecord(ENDPOINTS, PROTOCOLS, features={MARKER: (1, 1)}))
    members = ClusterMembers(BrokerId(1), scene.session, Tasks("test"))
    assert not members.announced.is_set()
    assert await announced(members, 1)
    assert members.announced.is_set()
    await register(scene.store.connect(), BrokerId(2), BrokerRecord(ENDPOINTS, PROTOCOLS))
    assert not await announced(members, 1, 2)
    assert members.others == {2}
    assert await announced(members, 1)
    assert not members.others
    # It may come back, and must be able to read what was written meanwhile.
    assert members.others_met == {2}


@on_scene
async def test_an_id_may_come_back_as_another_kind_of_broker(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="1")
    ours = BrokerRecord(ENDPOINTS, PROTOCOLS, features={MARKER: (1, 1)})
    await register(scene.session, BrokerId(1), ours)
    second = scene.store.connect()
    await register(second, BrokerId(2), ours)
    members = ClusterMembers(BrokerId(1), scene.session, Tasks("test"))
    assert await announced(members, 1, 2)
    await scene.store.expire(second)
    assert await announced(members, 1)
    await register(scene.store.connect(), BrokerId(2), BrokerRecord(ENDPOINTS, PROTOCOLS))
    assert not await announced(members, 1, 2)
    assert members.others == {2}


@on_scene
async def test_one_that_comes_back_as_ours_reads_all_that_is_ours(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="1")
    ours = BrokerRecord(ENDPOINTS, PROTOCOLS, features={MARKER: (1, 1)})
    await register(scene.session, BrokerId(1), ours)
    second = scene.store.connect()
    await register(second, BrokerId(2), BrokerRecord(ENDPOINTS, PROTOCOLS))
    members = ClusterMembers(BrokerId(1), scene.session, Tasks("test"))
    assert not await announced(members, 1, 2)
    await scene.store.expire(second)
    assert await announced(members, 1)
    await register(scene.store.connect(), BrokerId(2), ours)
    assert await announced(members, 1, 2)
    assert not members.others_met


@on_scene
async def test_a_new_session_reads_what_the_old_one_could_not(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="1")
    ours = BrokerRecord(ENDPOINTS, PROTOCOLS, features={MARKER: (1, 1)})
    await register(scene.store.connect(), BrokerId(1), ours)
    first = scene.store.connect()
    members = ClusterMembers(BrokerId(1), first, Tasks("test"))
    await scene.store.expire(first)
    members.session_lost()
    # The announcement comes between two sessions.
    assert not await announced(members, 1)
    await members.session_opened(scene.store.connect())
    assert members.all_ours
    await register(scene.store.connect(), BrokerId(2), ours)
    assert await announced(members, 1, 2)


@on_scene
async def test_features_are_read_once_the_store_answers(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="1")
    await register(scene.session, BrokerId(1), BrokerRecord(ENDPOINTS, PROTOCOLS, features={MARKER: (1, 1)}))
    session = scene.client.session
    sync, refusals = session.sync, [StoreUnavailableError("no connection")]

    async def sync_later() -> None:
        if refusals:
            raise refusals.pop()
        await sync()

    session.sync = sync_later  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordination, "_LOOK_AGAIN_S", 0)
        assert await announced(ClusterMembers(BrokerId(1), session, Tasks("test")), 1)


async def test_a_failed_directory_is_announced_once_the_store_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "_ANNOUNCE_AGAIN_S", 0)
    store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
    session = store.connect()
    await registration.prepare_store(session)
    create, refusals = session.create, [StoreUnavailableError("no connection")]

    async def create_later(*args: object, **more: object) -> str:
        if refusals:
            raise refusals.pop()
        return await create(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "create", create_later)
    await announce_failed_directory(session, BrokerId(7))
    (name,) = await session.children(paths.LOG_DIR_EVENTS)
    path = f"{paths.LOG_DIR_EVENTS}/{name}"
    assert records.decode_log_dir_event(path, (await session.get(path)).data) == 7
    await store.close()


def test_a_long_wait_for_other_leaders_is_mentioned_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, when the brokers that it waits for change, and else every 30 s of the five minutes."""
    clock = ManualClock()

    class AllLost:
        def is_lost(self, partition: TopicPartition, topic_id: bytes) -> bool:
            return True

    async def in_sync(session: object, broker: BrokerId) -> list[InSyncReplica]:
        other = BrokerId(2 if clock.monotonic() < 100 else 3)
        return [InSyncReplica(TopicPartition("t", 0), NEW_ID, (BrokerId(1), other))]

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    monkeypatch.setattr(coordination, "load_in_sync", in_sync)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    session, logs = cast("CurrentSession", None), cast("LogManager", AllLost())
    asyncio.run(let_others_lead(session, BrokerId(1), logs, clock))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("for up to ")[2].split(" ")[0] for line in lines] == [
        "300", "270", "240", "210", "200", "170", "140", "110", "80", "50", "20",
    ]  # fmt: skip
    assert lines[0].endswith("Start those of the brokers [2] that are down")
    assert lines[-1].endswith("Start those of the brokers [3] that are down")


@on_scene
async def test_a_cluster_that_agreed_on_what_is_not_known_here_is_not_joined(scene: Scene) -> None:
    await scene.identity(Directories(), broker_id="3")
    for levels, problem in (({MARKER: 2}, "knows up to 1"), ({"metadata.version": 20}, "no such feature")):
        await scene.session.set(paths.FEATURE, records.encode_features(FeaturesRecord(True, levels)))
        with pytest.raises(UserError, match=problem):
            await scene.identity(Directories(), broker_id="3")
    await scene.session.set(paths.FEATURE, records.encode_features(FeaturesRecord(True, {MARKER: 1})))
    await scene.identity(Directories(), broker_id="3")
