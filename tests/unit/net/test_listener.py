"""Accepting, refusing and closing idle connections on a real loopback socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from braidlog.core.errors import UserError
from braidlog.core.types import Endpoint
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.connection import ConnectionLimits
from braidlog.net.exchange import Exchange
from braidlog.net.listener import ConnectionBudget, Listener, bind
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.net.turns import Turns


class Echo(FrameHandler):
    def __init__(self, closed: asyncio.Event | None = None) -> None:
        self._closed = closed

    def channel_closed(self, channel: Channel) -> None:
        if self._closed is not None:
            self._closed.set()

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        exchange = Exchange(channel, 0, 0, 1, None, 0.0)
        channel.begin(exchange)
        exchange.reply([buffer[start:end]])


@asynccontextmanager
async def listening(
    budget: ConnectionBudget, max_idle_s: float = 600.0, closed: asyncio.Event | None = None
) -> AsyncIterator[Listener]:
    loop = asyncio.get_running_loop()
    sock = bind(Endpoint("PLAINTEXT", "127.0.0.1", 0))
    limits = ConnectionLimits(1 << 20, MemoryBudget(1 << 30), Turns(loop))
    listener = Listener(
        "PLAINTEXT",
        sock,
        Echo(closed),
        Round(loop),
        loop,
        budget,
        limits,
        lambda part, done: done(),
        max_idle_s=max_idle_s,
    )
    listener.start()
    try:
        yield listener
    finally:
        listener.stop_accepting()
        listener.close()


async def echo(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x00\x00\x00\x05hello")
    return await reader.read(100), writer


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def test_clients_are_served_until_they_leave() -> None:
    async def main() -> None:
        budget = ConnectionBudget(10, 10)
        closed = asyncio.Event()
        async with listening(budget, closed=closed) as listener:
            got, writer = await echo(listener.port)
            assert got == b"hello"
            assert listener.connections == budget.open == 1
            await close(writer)
            await closed.wait()
            assert budget.open == listener.connections == 0
            assert listener.accepted == 1

    asyncio.run(asyncio.wait_for(main(), 20))


def test_one_host_gets_no_more_than_its_share() -> None:
    async def main() -> None:
        budget = ConnectionBudget(10, 1)
        async with listening(budget) as listener:
            _, writer = await echo(listener.port)
            reader, second = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await reader.read(1) == b"", "the second is closed at once"
            assert budget.refused == 1
            await close(second)
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_idle_connections_are_closed() -> None:
    async def main() -> None:
        async with listening(ConnectionBudget(10, 10), max_idle_s=0.2) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await reader.read(1) == b""
            assert listener.closed_idle == 1
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_overrides_win_over_the_share_of_every_host() -> None:
    budget = ConnectionBudget(100, 1, {"10.0.0.1": 2, "10.0.0.2": 0})
    assert [budget.admit("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert not budget.admit("10.0.0.2")
    assert budget.admit("10.0.0.3")
    assert not budget.admit("10.0.0.3")
    budget.release("10.0.0.3")
    assert budget.admit("10.0.0.3")


def test_the_total_binds_all_hosts() -> None:
    budget = ConnectionBudget(2, 10)
    assert [budget.admit(f"10.0.0.{host}") for host in range(3)] == [True, True, False]


def test_a_taken_port_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} on 127.0.0.1 is taken .* --listen"):
            bind(Endpoint("PLAINTEXT", "127.0.0.1", port))


def test_a_foreign_address_is_told_with_what_to_do() -> None:
    with pytest.raises(UserError, match="not an address of this machine"):
        bind(Endpoint("PLAINTEXT", "192.0.2.1", 9092))
