"""What a session meets when the socket breaks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from braidlog.cluster.shared_store import store_connection
from braidlog.cluster.shared_store.store_connection import (
    SharedStore,
    SharedStoreSettings,
    StoreConnection,
    shared_store_settings,
)
from braidlog.cluster.store import EventKind, LeaseExpiredError, StoreUnavailableError, UnknownOutcomeError, WatchEvent
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry
from support.served_store import Served, run


def test_what_was_watched_over_a_lost_connection_counts_as_changed(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        session = await served.open()
        await session.create("/a")
        events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        await session.get("/a", events.put_nowait)
        await session.exists("/b", events.put_nowait)
        await session.children("/", events.put_nowait)
        session._connection.drop()
        found = [await events.get() for _ in range(3)]
        assert found == [
            WatchEvent(EventKind.DATA_CHANGED, "/a"),
            WatchEvent(EventKind.DATA_CHANGED, "/b"),
            WatchEvent(EventKind.CHILDREN_CHANGED, "/"),
        ]
        # None of them is left on the other side, where it would fire once more.
        await session.create("/b")
        await session.sync()
        assert events.empty()

    run(tmp_path, body)


def test_an_unanswered_change_has_an_unknown_outcome_that_sync_settles(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        session = await served.open()
        change = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(0)
        session._connection.drop()
        with pytest.raises(UnknownOutcomeError, match="shared store"):
            await change
        await session.sync()
        there = await session.exists("/a")
        await session.sync()
        assert (await session.exists("/a")) == there

    run(tmp_path, body)


def test_calls_fail_once_the_lease_is_over_and_go_on_when_the_store_is_back(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        session = await served.open(timeout_ms=1_000)
        await session.create("/e", ephemeral=True)
        await served.die()
        with pytest.raises(LeaseExpiredError):
            await session.set("/e", b"")
        assert not session.lease.valid()
        await served.serve()
        back = asyncio.Event()
        while not back.is_set():
            try:
                await session.sync()
                back.set()
            except StoreUnavailableError:
                await asyncio.sleep(0.01)
        assert session.lease.valid()
        assert await session.exists("/e") is not None

    run(tmp_path, body)


class Listener:
    """Hears nothing but that it is over."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def on_connected(self, generation: int, session_id: int, timeout_s: float, sent_at: float) -> None:
        raise AssertionError("nobody has said that")

    def on_disconnected(self) -> None:
        raise AssertionError("it was never connected")

    def on_session_expired(self) -> None:
        self.over.set()

    def on_failed(self, problem: str, authentication: bool) -> None:
        raise AssertionError(problem)

    def on_watch(self, event: WatchEvent) -> None:
        raise AssertionError(event)


@pytest.mark.parametrize("answer", [b"\xff\xff\xff\xff", b"\0\0\0\x01\xfe", b""])
def test_who_does_not_answer_as_a_store_is_tried_again(
    tmp_path: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_connection, "_WELCOME_TIMEOUT_S", 0.05)

    async def body() -> None:
        asked: asyncio.Queue[None] = asyncio.Queue()

        async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.put_nowait(None)
            writer.write(answer)
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(answers, str(tmp_path / "s"))
        connection = StoreConnection(str(tmp_path / "s"), "me", 1_000, Listener(), asyncio.get_running_loop().time)
        connection.start()
        for _ in range(3):
            await asyncio.wait_for(asked.get(), 30)
        await connection.stop()
        server.close()
        await server.wait_closed()
        # Those that it has not read yet end as well.
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))

    asyncio.run(body())


def test_nobody_serves(tmp_path: Path) -> None:
    async def body() -> None:
        settings = SharedStoreSettings(str(tmp_path / "no.sock"), "a", 1_000, 100)
        with pytest.raises(StoreUnavailableError, match=r"no\.sock within 100 ms .*braidlog serve --workers"):
            await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()

    asyncio.run(body())


def test_settings_are_those_of_zookeeper() -> None:
    given = BrokerSettings({"braidlog.store.socket": "/s", "zookeeper.session.timeout.ms": "6000"})
    assert shared_store_settings(given, "me") == SharedStoreSettings("/s", "me", 6_000, 6_000, 10)
    given = BrokerSettings({"braidlog.store.socket": "/s", "zookeeper.connection.timeout.ms": "100"})
    assert shared_store_settings(given, "me") == SharedStoreSettings("/s", "me", 18_000, 100, 10)


def test_the_timeout_is_what_the_store_allows(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        assert (await served.open(timeout_ms=10)).session_timeout_s == 1.0
        assert (await served.open(timeout_ms=10_000_000)).session_timeout_s == 120.0
        assert (await served.open(timeout_ms=6_000)).session_timeout_s == 6.0

    run(tmp_path, body)
