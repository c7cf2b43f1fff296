"""The contract of a coordination store over the socket, and what only a store that is served has."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.shared_store import frames, store_server
from braidlog.cluster.shared_store.frames import Frames, Hello
from braidlog.cluster.shared_store.shared_store import SharedStore, SharedStoreSettings
from braidlog.cluster.shared_store.store_server import StoreServer
from braidlog.cluster.store import (
    CoordinationStore,
    EventKind,
    LeaseExpiredError,
    SessionExpiredError,
    StoreUnavailableError,
    UnknownOutcomeError,
    WatchEvent,
)
from braidlog.cluster.zookeeper.session import ZooKeeperSession
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry
from support.store_contract import Connect, StoreContract


class Served:
    """A store that is served from a directory, and may be stopped, killed and served again."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "store.sock")
        self._directory = directory
        self._opened: list[ZooKeeperSession] = []

    async def serve(self) -> None:
        self._files = OsJournalFiles(str(self._directory))
        self.store = EmbeddedStore.open(self._files, SystemClock(), keep_ephemerals=True)
        self.server = StoreServer(self.store, self._files, SystemClock())
        await self.server.start(self.path)

    async def open(self, owner: str = "", timeout_ms: int = 30_000) -> ZooKeeperSession:
        settings = SharedStoreSettings(self.path, owner, timeout_ms, 10_000)
        session = await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()
        self._opened.append(session)
        return session

    async def stop(self) -> None:
        """With a clean end of the process."""
        await self.server.close()
        await self.store.close(end_sessions=False)

    async def die(self) -> None:
        """As a process that is killed: nothing is written any more, connections break."""
        server = self.server
        assert server._server is not None
        server._server.close()
        for connection in list(server._connections):
            assert connection._transport is not None
            connection._transport.abort()
        await server._tasks.close()
        self._files.close()

    async def close(self) -> None:
        for session in self._opened:
            await session.close()
        await self.stop()


class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Connect]:
        self.served = Served(self.path)
        await self.served.serve()
        yield self.served.open
        await self.served.close()

    async def expire(self, session: CoordinationStore) -> None:
        told = asyncio.Event()
        session.on_expiry(told.set)
        await self.served.server.expire(session.session_id)
        await told.wait()


def run(directory: Path, body: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        served = Served(directory)
        await served.serve()
        async with asyncio.timeout(30):
            await body(served)
            await served.close()

    asyncio.run(limited())


def test_a_session_goes_on_when_the_store_comes_back(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        session = await served.open("a")
        await session.create("/e", b"here", ephemeral=True)
        before = await session.exists("/e")
        lost: list[str] = []
        session.on_expiry(lambda: lost.append("expired"))
        await served.die()
        assert session.lease.valid()
        waiting = asyncio.ensure_future(session.get("/e"))
        await served.serve()
        assert (await waiting).stat == before
        await session.create("/e2", ephemeral=True)
        await served.stop()
        await served.serve()
        assert await session.exists("/e2") is not None
        assert lost == []

    run(tmp_path, body)


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


def test_a_process_that_begins_anew_ends_the_session_of_its_last_life(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        first = await served.open("worker-0")
        other = await served.open("worker-1")
        await first.create("/first", ephemeral=True)
        await other.create("/other", ephemeral=True)
        lost = asyncio.Event()
        first.on_expiry(lost.set)
        second = await served.open("worker-0")
        assert await second.exists("/first") is None
        assert await second.exists("/other") is not None
        await lost.wait()
        with pytest.raises(SessionExpiredError):
            await first.sync()

    run(tmp_path, body)


def test_also_if_the_store_has_died_meanwhile(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        first = await served.open("worker-0")
        await first.create("/first", ephemeral=True)
        await served.die()
        await first._connection._tasks.close()
        await served.serve()
        second = await served.open("worker-0")
        assert await second.exists("/first") is None

    run(tmp_path, body)


def test_a_silent_session_expires_after_its_timeout_and_no_sooner(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        watching = await served.open()
        silent = await served.open(timeout_ms=1_000)
        await silent.create("/e", ephemeral=True)
        gone = asyncio.Event()
        await watching.exists("/e", lambda event: gone.set())
        # Its process stands still: it neither sends nor reads.
        assert silent._connection._link is not None
        silent._connection._link._transport.pause_reading()
        await silent._tasks.close()
        lease = silent.lease
        await gone.wait()
        assert not lease.valid()

    run(tmp_path, body)


def test_sessions_without_a_process_end_after_the_store_is_back(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        short = await served.open("short", timeout_ms=1_000)
        await short.create("/e", ephemeral=True)
        await served.die()
        await short._connection._tasks.close()
        await served.serve()
        other = await served.open()
        gone = asyncio.Event()
        assert await other.exists("/e", lambda event: gone.set()) is not None
        await gone.wait()
        assert await other.exists("/e") is None

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


def test_nobody_serves(tmp_path: Path) -> None:
    async def body() -> None:
        settings = SharedStoreSettings(str(tmp_path / "no.sock"), "a", 1_000, 100)
        with pytest.raises(StoreUnavailableError, match=r"no\.sock within 100 ms .*braidlog serve --workers"):
            await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()

    asyncio.run(body())


def test_the_socket_is_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(served: Served) -> None:
        assert stat.S_IMODE(os.stat(served.path).st_mode) == 0o600
        monkeypatch.setattr(store_server, "_peer_user", lambda connection: os.getuid() + 1)
        reader, writer = await asyncio.open_unix_connection(served.path)
        assert await reader.read() == b""
        writer.close()
        monkeypatch.undo()

    run(tmp_path, body)


HELLO = frames.encode_hello(Hello(0, 5_000, "x"))


@pytest.mark.parametrize(
    ("begins", "sent"),
    [
        (b"", b"GET / HTTP/1.1\r\n\r\n"),
        (b"", b"\0\0\0\0"),
        (b"", b"\xff\xff\xff\xff"),
        (b"", frames.encode_close(1)),
        (b"", HELLO[:-1] + b"\xff"),
        (HELLO, b"\0\0\0\x01\xfe"),
        (HELLO, HELLO),
    ],
)
def test_rubbish_closes_its_connection_and_no_other(tmp_path: Path, begins: bytes, sent: bytes) -> None:
    async def body(served: Served) -> None:
        session = await served.open("good")
        reader, writer = await asyncio.open_unix_connection(served.path)
        if begins:
            writer.write(begins)
            await reader.readexactly(len(frames.encode_welcome(0, 0)))
        writer.write(sent)
        (said,) = Frames(1000).feed(await reader.read())
        assert frames.kind_of(said) == frames.REFUSED
        writer.close()
        await session.create("/a")

    run(tmp_path, body)


def test_a_session_that_is_not_known_is_over(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        session = await served.open("mine")
        for hello in (Hello(12345, 5_000, "mine"), Hello(session.session_id, 5_000, "another's")):
            reader, writer = await asyncio.open_unix_connection(served.path)
            writer.write(frames.encode_hello(hello))
            assert await reader.read() == frames.encode_expired()
            writer.close()
        await session.sync()

    run(tmp_path, body)


def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "store.sock"))

    async def body(served: Served) -> None:
        await (await served.open()).create("/a")

    run(tmp_path, body)


def test_it_waits_for_those_who_still_stop(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        session = await served.open()
        idle = asyncio.ensure_future(served.server.wait_until_idle(20))
        await session.create("/a")
        assert not idle.done()
        await session.close()
        await idle

    run(tmp_path, body)
