from __future__ import annotations

import asyncio

import pytest

from braidlog.cluster import store_client
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import CoordinationStore, SessionExpiredError, StoreUnavailableError, UnknownOutcomeError
from braidlog.cluster.store_client import StoreClient
from braidlog.core.clock import ManualClock
from support.memory_journal import MemoryJournalFiles


class Story:
    """Listeners that write down what they hear."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.turn = asyncio.Event()

    def say(self, what: str) -> None:
        self.told.append(what)
        self.turn.set()

    async def reaches(self, length: int) -> list[str]:
        while len(self.told) < length:
            self.turn.clear()
            await asyncio.wait_for(self.turn.wait(), 10)
        return self.told


class Listener:
    def __init__(self, name: str, story: Story) -> None:
        self.name = name
        self.story = story
        self.failures: list[Exception] = []

    def session_lost(self) -> None:
        self.story.say(f"{self.name} lost")

    async def session_opened(self, session: CoordinationStore) -> None:
        if self.failures:
            raise self.failures.pop(0)
        await session.create(f"/{self.name}", ephemeral=True)
        self.story.say(f"{self.name} opened")


class Scene:
    def __init__(self) -> None:
        self.store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        self.client = StoreClient(self.connect)
        self.story = Story()
        self.one, self.two = Listener("one", self.story), Listener("two", self.story)
        self.client.add_listener(self.one)
        self.client.add_listener(self.two)
        self.refusals: list[Exception] = []

    async def connect(self) -> CoordinationStore:
        if self.refusals:
            raise self.refusals.pop(0)
        return await self.store.open_session()

    async def expire(self) -> None:
        session = self.client.session
        assert isinstance(session, EmbeddedSession)
        await self.store.expire(session)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_client, "_FIRST_RETRY_S", 0.001)


def test_listeners_hear_in_order_of_a_loss_and_of_the_next_session() -> None:
    async def run() -> None:
        scene = Scene()
        first = await scene.client.start()
        assert scene.story.told == []
        await scene.expire()
        assert await scene.story.reaches(4) == ["one lost", "two lost", "one opened", "two opened"]
        assert scene.client.session is not first
        with pytest.raises(SessionExpiredError):
            await first.get("/")
        await scene.client.close()
        assert len(scene.story.told) == 4

    asyncio.run(run())


def test_one_listener_may_come_before_those_that_were_there() -> None:
    async def run() -> None:
        scene = Scene()
        await scene.client.start()
        scene.client.add_listener(Listener("zero", scene.story), first=True)
        await scene.expire()
        await scene.story.reaches(6)
        assert scene.story.told[3:] == ["zero opened", "one opened", "two opened"]
        await scene.client.close()

    asyncio.run(run())


def test_a_session_is_tried_until_it_opens() -> None:
    async def run() -> None:
        scene = Scene()
        await scene.client.start()
        scene.refusals = [StoreUnavailableError("down"), StoreUnavailableError("down")]
        await scene.expire()
        assert (await scene.story.reaches(4))[2:] == ["one opened", "two opened"]

    asyncio.run(run())


def test_the_first_session_is_not_tried_again() -> None:
    async def run() -> None:
        scene = Scene()
        scene.refusals = [StoreUnavailableError("down")]
        with pytest.raises(StoreUnavailableError):
            await scene.client.start()

    asyncio.run(run())


def test_a_listener_that_met_a_lost_connection_is_told_again() -> None:
    async def run() -> None:
        scene = Scene()
        await scene.client.start()
        scene.one.failures = [UnknownOutcomeError("lost"), StoreUnavailableError("down")]
        await scene.expire()
        assert (await scene.story.reaches(4))[2:] == ["one opened", "two opened"]

    asyncio.run(run())


def test_a_listener_that_fails_does_not_keep_the_others_from_hearing() -> None:
    async def run() -> None:
        scene = Scene()
        await scene.client.start()
        scene.one.failures = [RuntimeError("a bug")]
        await scene.expire()
        assert (await scene.story.reaches(3))[2:] == ["two opened"]

    asyncio.run(run())


def test_a_session_lost_while_listeners_are_told_is_lost_to_all_before_the_next() -> None:
    async def run() -> None:
        scene = Scene()
        await scene.client.start()
        opened = scene.one.session_opened

        async def opened_then_lost(session: CoordinationStore) -> None:
            await opened(session)
            scene.one.session_opened = opened  # type: ignore[method-assign]
            await scene.expire()

        scene.one.session_opened = opened_then_lost  # type: ignore[method-assign]
        await scene.expire()
        assert await scene.story.reaches(7) == [
            "one lost", "two lost", "one opened", "one lost", "two lost", "one opened", "two opened",
        ]  # fmt: skip

    asyncio.run(run())
