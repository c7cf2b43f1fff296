"""The contract of a coordination store against a real ZooKeeper, and what only a store behind a network has."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from braidlog.cluster import paths, registration
from braidlog.cluster.records import BrokerRecord
from braidlog.cluster.store import (
    MAX_REQUEST_BYTES,
    CoordinationStore,
    Create,
    EventKind,
    LeaseExpiredError,
    RequestTooLargeError,
    SessionExpiredError,
    SetData,
    StoreUnavailableError,
    UnknownOutcomeError,
    WatchEvent,
)
from braidlog.cluster.store_client import StoreClient
from braidlog.cluster.zookeeper.connection_settings import ConnectionSettings, parse_connect
from braidlog.cluster.zookeeper.session import ZooKeeperSession
from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore
from braidlog.core.clock import SystemClock
from braidlog.core.errors import FatalError
from braidlog.core.types import BrokerId, Endpoint
from braidlog.local_cluster.zookeeper import ZooKeeper, ZooKeeperServer, zookeeper_missing
from braidlog.metrics import MetricsRegistry
from support.cutting_proxy import CuttingProxy
from support.ports import lasting_port
from support.store_contract import Connect, StoreContract

MISSING = zookeeper_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
RECORD = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"})
# Where a session is to end. Elsewhere it is long, since a busy machine must not end it.
SHORT_MS = 4_000

_chroots = (f"/test-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as running:
        yield running


def settings_for(connect: str, chroot: str | None = None, **changed: object) -> ConnectionSettings:
    servers, _ = parse_connect(connect)
    values: dict[str, object] = {"session_timeout_ms": 30_000, "connection_timeout_ms": 30_000, **changed}
    return ConnectionSettings(servers, next(_chroots) if chroot is None else chroot, **values)  # type: ignore[arg-type]


class Sessions:
    """Opens sessions for a test, and closes them after it."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.metrics = MetricsRegistry()
        self.store = ZooKeeperStore(settings, SystemClock(), self.metrics)
        self._open: list[ZooKeeperSession] = []

    async def open(self) -> ZooKeeperSession:
        session = await self.store.open_session()
        self._open.append(session)
        return session

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._open))


class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def server(self, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Connect]:
        sessions = Sessions(settings_for(self.zookeeper.connect))
        yield sessions.open
        await sessions.close()

    async def expire(self, session: CoordinationStore) -> None:
        assert isinstance(session, ZooKeeperSession)
        await expire(session, self.zookeeper)


async def expire(session: ZooKeeperSession, zookeeper: ZooKeeper) -> None:
    """Close the session from another connection, and wait until it has noticed."""
    client = session._connection._client
    told = asyncio.Event()
    session.on_expiry(told.set)
    thief = KazooClient(zookeeper.connect, client_id=(client._session_id, client._session_passwd), logger=QUIET)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await asyncio.to_thread(thief.close)
    await told.wait()


def run(body: Awaitable[None]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(body, 60)

    asyncio.run(limited())


async def until(holds: Callable[[], bool]) -> None:
    """For what happens by itself and tells nobody."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class Link:
    """Two ways to one ZooKeeper and one chroot: `cut` breaks the connections of the sessions that `near` opens."""

    def __init__(self, zookeeper: ZooKeeper, proxy: CuttingProxy, session_timeout_ms: int) -> None:
        chroot = next(_chroots)
        self.proxy = proxy
        self.near = Sessions(settings_for(proxy.bootstrap, chroot, session_timeout_ms=session_timeout_ms))
        self.far = Sessions(settings_for(zookeeper.connect, chroot))

    def break_off(self) -> None:
        """The server is out of reach until `restore`."""
        self.proxy.broker_port, self._port = lasting_port(), self.proxy.broker_port
        self.proxy.cut()

    def restore(self) -> None:
        self.proxy.broker_port = self._port


@asynccontextmanager
async def link(zookeeper: ZooKeeper, session_timeout_ms: int = 30_000) -> AsyncIterator[Link]:
    with CuttingProxy() as proxy:
        proxy.broker_port = zookeeper.servers[0].port
        made = Link(zookeeper, proxy, session_timeout_ms)
        yield made
        await made.near.close()
        await made.far.close()


def test_a_change_whose_answer_was_lost_has_an_unknown_outcome(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        async with link(zookeeper) as both:
            near, far = await both.near.open(), await both.far.open()
            arrived = asyncio.Event()
            await far.exists("/a", lambda event: arrived.set())
            both.proxy.lose_answers(True)
            create = asyncio.ensure_future(near.create("/a", b"1"))
            await arrived.wait()
            both.proxy.cut()
            both.proxy.lose_answers(False)
            with pytest.raises(UnknownOutcomeError):
                await create
            await near.sync()
            assert (await near.get("/a")).data == b"1"

    run(body())


def test_reads_are_sent_again_and_what_waits_is_sent_in_order(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        async with link(zookeeper) as both:
            near = await both.near.open()
            session_id = near.session_id
            await near.create("/a", b"0")
            both.proxy.lose_answers(True)
            reads = [asyncio.ensure_future(near.get("/a")) for _ in range(30)]
            await asyncio.sleep(0)
            both.break_off()
            await until(lambda: not near._connected)
            both.proxy.lose_answers(False)
            writes = [asyncio.ensure_future(near.set("/a", str(turn).encode())) for turn in range(1, 30)]
            await asyncio.sleep(0)
            both.restore()
            assert [(await read).data for read in reads] == [b"0"] * 30
            assert [(await write).version for write in writes] == list(range(1, 30))
            assert (near.session_id, (await near.get("/a")).data) == (session_id, b"29")

    run(body())


def test_watches_outlive_a_connection_and_fire_before_the_change_is_read(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        async with link(zookeeper) as both:
            near, far = await both.near.open(), await both.far.open()
            for name in ("data", "gone", "parent", "quiet"):
                await far.create(f"/{name}")
            await near.sync()
            events: list[WatchEvent] = []
            for name in ("data", "gone", "quiet"):
                await near.get(f"/{name}", events.append)
            await near.exists("/coming", events.append)
            await near.exists("/never", events.append)
            await near.children("/parent", events.append)
            both.break_off()
            await until(lambda: not near._connected)
            await far.multi([SetData("/data", b"1"), Create("/coming"), Create("/parent/child")])
            await far.delete("/gone")
            both.restore()
            assert (await near.get("/data")).data == b"1"
            assert sorted(events) == [
                WatchEvent(EventKind.CREATED, "/coming"),
                WatchEvent(EventKind.DELETED, "/gone"),
                WatchEvent(EventKind.DATA_CHANGED, "/data"),
                WatchEvent(EventKind.CHILDREN_CHANGED, "/parent"),
            ]
            await far.set("/quiet", b"1")
            await far.create("/never")
            await near.sync()
            await near.get("/quiet")
            assert events[4:] == [WatchEvent(EventKind.DATA_CHANGED, "/quiet"), WatchEvent(EventKind.CREATED, "/never")]

    run(body())


def test_thousands_of_watches_outlive_a_connection(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        async with link(zookeeper) as both:
            near, far = await both.near.open(), await both.far.open()
            names = [f"/{'long' * 40}-{number}" for number in range(2_000)]
            for at in range(0, len(names), 500):
                await far.multi([Create(name) for name in names[at : at + 500]])
            await near.sync()
            events: list[WatchEvent] = []
            await asyncio.gather(*(near.get(name, events.append) for name in names))
            both.break_off()
            await until(lambda: not near._connected)
            both.restore()
            await near.sync()
            assert events == []
            for at in range(0, len(names), 500):
                await far.multi([SetData(name, b"1") for name in names[at : at + 500]])
            await near.sync()
            assert sorted(events) == sorted(WatchEvent(EventKind.DATA_CHANGED, name) for name in names)

    run(body())


def test_silence_ends_the_lease_then_calls_and_at_last_the_session(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        async with link(zookeeper, SHORT_MS) as both:
            near, far = await both.near.open(), await both.far.open()
            await near.create("/e", ephemeral=True)
            expired = asyncio.Event()
            near.on_expiry(expired.set)
            both.break_off()
            await until(lambda: not near._connected)
            with pytest.raises(LeaseExpiredError):
                await near.create("/late")
            assert not near.lease.valid()
            with pytest.raises(LeaseExpiredError):
                await near.get("/e")
            assert not near.expired
            gone = asyncio.Event()
            if await far.exists("/e", lambda event: gone.set()) is not None:
                await gone.wait()
            both.restore()
            await expired.wait()
            assert near.expired
            with pytest.raises(SessionExpiredError):
                await near.get("/e")
            page = both.near.metrics.text()
            for line in ("syncconnects_total 1", "disconnects_total 1", "expires_total 1"):
                assert f"kafka_server_sessionexpirelistener_zookeeper{line}" in page
            assert 'sessionexpirelistener_sessionstate{state="EXPIRED"} 1' in page

    run(body())


def test_a_quiet_session_keeps_its_lease_and_one_whose_server_stalls_loses_it(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        sessions = Sessions(settings_for(zookeeper.connect, session_timeout_ms=SHORT_MS))
        session = await sessions.open()
        began = session.lease.deadline
        await until(lambda: session.lease.deadline > began + 1.5 * SHORT_MS / 1000)
        assert session.lease.valid()
        zookeeper.each(ZooKeeperServer.pause)
        try:
            await until(lambda: not session.lease.valid())
            # Whether the call is out, or waits for a connection: it is told.
            with pytest.raises((LeaseExpiredError, UnknownOutcomeError)):
                await session.create("/late")
        finally:
            zookeeper.each(ZooKeeperServer.resume)
        await until(lambda: session.lease.valid() or session.expired)
        await sessions.close()

    run(body())


def test_sessions_follow_each_other_and_listeners_are_told(zookeeper: ZooKeeper) -> None:
    class Registration:
        def __init__(self) -> None:
            self.told: list[str] = []
            self.opened = asyncio.Event()

        def session_lost(self) -> None:
            self.told.append("lost")

        async def session_opened(self, session: CoordinationStore) -> None:
            await registration.register(session, BrokerId(1), RECORD)
            self.told.append("opened")
            self.opened.set()

    async def body() -> None:
        sessions = Sessions(settings_for(zookeeper.connect))
        client = StoreClient(sessions.open)
        listener = Registration()
        client.add_listener(listener)
        first = await client.start()
        await registration.prepare_store(first)
        epoch = await registration.register(first, BrokerId(1), RECORD)
        assert isinstance(first, ZooKeeperSession)
        await expire(first, zookeeper)
        await listener.opened.wait()
        assert listener.told == ["lost", "opened"]
        stat = await client.session.exists(paths.broker(1))
        assert stat is not None
        assert stat.czxid > epoch
        assert stat.ephemeral_owner == client.session.session_id != first.session_id
        await client.close()
        await sessions.close()

    run(body())


def test_a_restart_waits_for_the_session_of_the_life_before(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        async with link(zookeeper, SHORT_MS) as both:
            dead, alive = await both.near.open(), await both.far.open()
            await registration.prepare_store(dead)
            epoch = await registration.register(dead, BrokerId(1), RECORD)
            both.break_off()
            assert await registration.register(alive, BrokerId(1), RECORD) > epoch
            both.restore()
            third = await both.near.open()
            with pytest.raises(FatalError, match="another broker that is alive"):
                await registration.register(third, BrokerId(1), RECORD)

    run(body())


def test_an_ensemble_goes_on_without_its_leader() -> None:
    async def body() -> None:
        sessions = Sessions(settings_for(ensemble.connect, "/kafka/one"))
        session = await sessions.open()
        session_id = session.session_id
        await session.create("/e", b"1", ephemeral=True)
        leader = ensemble.leader()
        await asyncio.to_thread(leader.kill)
        for turn in itertools.count():
            try:
                await session.set("/e", str(turn).encode())
                break
            except UnknownOutcomeError:
                await session.sync()
        assert session.session_id == session_id
        assert not session.expired
        await sessions.close()

    with ZooKeeper(servers=3) as ensemble:
        run(body())


def test_ten_thousand_nodes_are_read_in_the_order_asked(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        sessions = Sessions(settings_for(zookeeper.connect))
        session = await sessions.open()
        names = [f"/node-{number:05d}" for number in range(10_000)]
        for at in range(0, len(names), 1_000):
            await session.multi([Create(name, name.encode()) for name in names[at : at + 1_000]])
        asked = [*reversed(names), "/missing"]
        nodes = await session.get_many(asked)
        assert [node.data.decode() if node else "/missing" for node in nodes] == asked
        await sessions.close()

    run(body())


def test_requests_above_the_limit_are_refused_and_those_below_are_not(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        sessions = Sessions(settings_for(zookeeper.connect))
        session = await sessions.open()
        assert session.max_request_bytes == MAX_REQUEST_BYTES
        with pytest.raises(RequestTooLargeError):
            await session.create("/large", bytes(MAX_REQUEST_BYTES))
        with pytest.raises(RequestTooLargeError):
            await session.multi([Create(f"/n{number}", bytes(1000)) for number in range(600)])
        await session.create("/large", bytes(MAX_REQUEST_BYTES - 200))
        await session.multi([Create(f"/n{number}", bytes(1000)) for number in range(400)])
        assert len(await session.children("/")) == 401
        await sessions.close()

    run(body())


def test_a_chroot_is_created_and_a_node_without_data_is_null(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        chroot = f"{next(_chroots)}/deeper/kafka"
        sessions = Sessions(settings_for(zookeeper.connect, chroot))
        session = await sessions.open()
        assert await session.create("/a") == "/a"
        plain = Sessions(settings_for(zookeeper.connect, ""))
        assert await (await plain.open()).children(chroot) == ["a"]
        raw = KazooClient(zookeeper.connect, logger=QUIET)
        await asyncio.to_thread(raw.start)
        assert raw.get(f"{chroot}/a")[0] is None
        await asyncio.to_thread(raw.stop)
        await asyncio.to_thread(raw.close)
        await plain.close()
        await sessions.close()

    run(body())


def test_a_zookeeper_that_is_not_there_is_told_in_one_line() -> None:
    async def body() -> None:
        nowhere = f"127.0.0.1:{lasting_port()}"
        sessions = Sessions(settings_for(nowhere, connection_timeout_ms=300))
        with pytest.raises(StoreUnavailableError) as refused:
            await sessions.open()
        told = str(refused.value)
        assert "\n" not in told
        assert nowhere in told
        assert "onnection refused" in told
        assert "zookeeper.connect" in told

    run(body())


def test_names_that_are_not_known_are_told_in_one_line() -> None:
    async def body() -> None:
        sessions = Sessions(settings_for("zookeeper.invalid:2181", connection_timeout_ms=1_000))
        with pytest.raises(StoreUnavailableError, match=r"zookeeper\.invalid.*no host name") as refused:
            await sessions.open()
        assert "\n" not in str(refused.value)

    run(body())


def test_sessions_outlive_a_server_that_is_killed_and_started_again(tmp_path: Path) -> None:
    async def body() -> None:
        sessions = Sessions(settings_for(alone.connect))
        session = await sessions.open()
        await session.create("/e", b"1", ephemeral=True)
        events: list[WatchEvent] = []
        await session.get("/e", events.append)
        (server,) = alone.servers
        await asyncio.to_thread(server.kill)
        await until(lambda: not session._connected)
        server.start()
        assert (await session.get("/e")).stat.ephemeral_owner == session.session_id
        assert events == []
        await session.set("/e", b"2")
        await session.sync()
        assert events == [WatchEvent(EventKind.DATA_CHANGED, "/e")]
        await sessions.close()

    with ZooKeeper(directory=tmp_path) as alone:
        run(body())


def test_what_is_in_flight_is_bounded(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        sessions = Sessions(settings_for(zookeeper.connect, max_in_flight=3))
        session = await sessions.open()
        reads = [asyncio.ensure_future(session.exists("/")) for _ in range(50)]
        most = 0
        while not all(read.done() for read in reads):
            await asyncio.sleep(0)
            most = max(most, len(session._in_flight))
        assert 0 < most <= 3
        await sessions.close()

    run(body())
