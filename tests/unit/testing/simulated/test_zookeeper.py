"""The simulated ZooKeeper keeps the contract of a coordination store, whatever its seed, and fails as it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from braidlog.cluster import paths, registration
from braidlog.cluster.records import BrokerRecord
from braidlog.cluster.store import (
    CoordinationStore,
    Create,
    EventKind,
    LeaseExpiredError,
    SessionExpiredError,
    StoreUnavailableError,
    UnknownOutcomeError,
    WatchEvent,
)
from braidlog.cluster.zookeeper.session import ZooKeeperSession
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.plan import Put, Remove
from braidlog.core.errors import FatalError
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.types import BrokerId, Endpoint
from braidlog.testing.simulated.loop import Process, SimulatedClock, SimulatedLoop
from braidlog.testing.simulated.zookeeper import SimulatedZooKeeper
from support.store_contract import Connect, StoreContract

RECORD = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"})
SEEDS = range(25)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop(self.random)  # type: ignore[abstract]
        self.clock = SimulatedClock(self.loop)
        self.zookeeper = SimulatedZooKeeper(self.loop, self.random, self.clock, trace=self.note)
        self.trace: list[str] = []

    def note(self, line: str) -> None:
        self.trace.append(f"{self.loop.time():.6f} {line}")

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)
        assert self.loop.problems == []
        self.loop.close()


@pytest.mark.parametrize("seed", SEEDS)
class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def make_world(self, seed: int) -> None:
        self.world = World(seed)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.world.run(work)

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Connect]:
        async def connect() -> CoordinationStore:
            return await self.world.zookeeper.open_session("broker")

        yield connect

    async def expire(self, session: CoordinationStore) -> None:
        told = asyncio.Event()
        session.on_expiry(told.set)
        self.world.zookeeper.expire(session.session_id)
        await told.wait()


def test_a_server_that_lags_shows_less_until_sync() -> None:
    stale = 0
    for seed in range(200):
        world = World(seed)

        async def body(world: World = world) -> None:
            nonlocal stale
            writing, reading = [await world.zookeeper.open_session(name) for name in ("a", "b")]
            await writing.create("/a")
            stale += await reading.exists("/a") is None
            await reading.sync()
            assert await reading.exists("/a") is not None

        world.run(body())
    assert 0 < stale < 200


def test_a_lost_answer_is_an_unknown_outcome_and_either_happened_or_never_will() -> None:
    happened = 0
    for seed in range(100):
        world = World(seed)

        async def body(world: World = world) -> None:
            nonlocal happened
            session = await world.zookeeper.open_session("a")
            # Either on its way there, or on the way back.
            create = asyncio.ensure_future(session.create("/a"))
            await asyncio.sleep(world.random.random() * 0.0015)
            world.zookeeper.break_link("a")
            try:
                await create
            except UnknownOutcomeError:
                await session.sync()
                found = await session.exists("/a") is not None
                happened += found
                await asyncio.sleep(1)
                assert (await session.exists("/a") is not None) == found

        world.run(body())
    assert 0 < happened < 100


def test_a_cut_link_ends_the_lease_first_and_the_session_later() -> None:
    world = World(3)

    async def body() -> None:
        session, other = await world.zookeeper.open_session("a"), await world.zookeeper.open_session("b")
        await session.create("/e", ephemeral=True)
        await other.sync()
        gone_at: list[float] = []
        await other.exists("/e", lambda event: gone_at.append(world.loop.time()))
        expired = asyncio.Event()
        session.on_expiry(expired.set)
        world.zookeeper.cut("a")
        with pytest.raises((LeaseExpiredError, UnknownOutcomeError)):
            await session.create("/late")
        await asyncio.sleep(session.lease.remaining_s())
        assert not session.lease.valid()
        assert gone_at == []
        await asyncio.sleep(10)
        assert gone_at[0] >= session.lease.deadline
        assert not session.expired
        world.zookeeper.restore("a")
        await expired.wait()
        assert await other.exists("/late") is None
        with pytest.raises(SessionExpiredError):
            await session.get("/")

    world.run(body())


def test_no_lease_outlasts_its_session() -> None:
    """The one thing a lease is for, over many ways in which links fail."""
    ended = 0
    for seed in range(150):
        world = World(seed)
        world.zookeeper.lose_answer_one_in = 10

        async def body(world: World = world) -> None:
            nonlocal ended
            session = await world.zookeeper.open_session("a")
            while True:
                try:
                    await session.create("/e", ephemeral=True)
                    break
                except UnknownOutcomeError:
                    await session.sync()
                    if await session.exists("/e") is not None:
                        break
            for _ in range(8):
                act = world.random.randrange(4)
                if act == 0:
                    world.zookeeper.cut("a")
                elif act == 1:
                    world.zookeeper.restore("a")
                elif act == 2:
                    world.zookeeper.break_link("a")
                for _ in range(world.random.randrange(40)):
                    await asyncio.sleep(0.1)
                    if world.zookeeper.tree.find("/e") is None:
                        ended += 1
                        assert not session.lease.valid()
                        return

        world.run(body())
    assert ended > 20


def test_an_ensemble_that_was_down_ends_no_session() -> None:
    world = World(5)

    async def body() -> None:
        session = await world.zookeeper.open_session("a")
        await session.create("/e", ephemeral=True)
        events: list[WatchEvent] = []
        await session.exists("/f", events.append)
        world.zookeeper.go_down()
        with pytest.raises(LeaseExpiredError):
            await session.get("/e")
        with pytest.raises(StoreUnavailableError):
            await world.zookeeper.open_session("b", connection_timeout_ms=500)
        await asyncio.sleep(60)
        assert not session.lease.valid()
        world.zookeeper.come_up()
        await asyncio.sleep(2)
        assert session.lease.valid()
        assert (await session.get("/e")).stat.ephemeral_owner == session.session_id
        await session.create("/f")
        await session.sync()
        assert events == [WatchEvent(EventKind.CREATED, "/f")]

    world.run(body())


def test_the_session_of_a_dead_process_ends_by_its_timeout_and_its_successor_waits_for_it() -> None:
    world = World(9)
    process = Process("broker 1")

    async def first_life() -> None:
        session = await world.zookeeper.open_session("1")
        await registration.prepare_store(session)
        await registration.register(session, BrokerId(1), RECORD)
        await asyncio.sleep(3600)

    async def body() -> None:
        world.loop.create_task(first_life(), context=process.context.copy())
        await asyncio.sleep(2)
        world.loop.end(process)
        second = await world.zookeeper.open_session("1")
        began = world.loop.time()
        await registration.register(second, BrokerId(1), RECORD)
        assert 3 < world.loop.time() - began < 9
        with pytest.raises(FatalError, match="another broker that is alive"):
            await registration.register(await world.zookeeper.open_session("2"), BrokerId(1), RECORD)

    world.run(body())


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_register_and_elect_through_lost_answers(seed: int) -> None:
    world = World(seed)
    world.zookeeper.lose_answer_one_in = 3

    async def join(number: int) -> FencedStore | None:
        session = await world.zookeeper.open_session(str(number))
        await registration.prepare_store(session)
        ids.append(await registration.cluster_id(session, lambda: world.random.randbytes(16)))
        await registration.register(session, BrokerId(number), RECORD)
        stat = await session.exists(paths.broker(number))
        assert stat is not None
        assert stat.ephemeral_owner == session.session_id
        try:
            fenced = await FencedStore.elect(session, BrokerId(number), 0)
        except NotControllerError:
            return None
        # Steps of every kind, over and over; each takes effect once.
        await fenced.commit([Put("/counted", b"")])
        for turn in range(10):
            await fenced.commit([Create(f"/turn{turn}"), Put("/last", str(turn).encode())])
        await fenced.commit([Remove("/turn0"), Remove("/missing")])
        controllers.append(session)
        return fenced

    ids: list[str] = []
    controllers: list[ZooKeeperSession] = []

    async def body() -> None:
        elected = [each for each in await asyncio.gather(*(join(number) for number in range(3))) if each is not None]
        assert [each.epoch for each in elected] == [1]
        assert len(set(ids)) == 1
        (session,) = controllers
        await session.sync()
        assert (await session.get("/last")).data == b"9"
        names = [name for name in await session.children("/") if name.startswith("turn")]
        assert names == [f"turn{turn}" for turn in range(1, 10)]

    world.run(body())


def test_a_seed_replays_exactly() -> None:
    def story(seed: int) -> tuple[list[str], float]:
        world = World(seed)
        world.zookeeper.lose_answer_one_in = 4

        async def body() -> None:
            for number in range(3):
                session = await world.zookeeper.open_session(str(number))
                await registration.prepare_store(session)
                world.note(f"{number}: {await session.children('/')}")
                world.zookeeper.cut(str(number))
            await asyncio.sleep(20)

        world.run(body())
        return world.trace, world.loop.time()

    assert story(1) == story(1)
    assert story(1) != story(2)
