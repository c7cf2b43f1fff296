"""The contract of a coordination store over the socket, and what only a store that is served has."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from braidlog.cluster.shared_store import frames, store_server
from braidlog.cluster.shared_store.frames import Frames, Hello
from braidlog.cluster.store import (
    CoordinationStore,
    SessionExpiredError,
)
from support.served_store import Served, run
from support.store_contract import Connect, StoreContract


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
