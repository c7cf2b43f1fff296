"""Accepting, refusing and closing idle connections on a real loopback socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from braidlog.core.errors import UserError
from braidlog.core.quota import QuotaWindow
from braidlog.core.types import Endpoint
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.connection import ConnectionLimits
from braidlog.net.connection_quotas import ConnectionQuotas
from braidlog.net.exchange import Exchange
from braidlog.net.fair_queue import FairQueue
from braidlog.net.listener import Listener, bind
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from support.exchanges import reply


class Echo(FrameHandler):
    def __init__(self, closed: asyncio.Event | None = None) -> None:
        self._closed = closed

    def channel_closed(self, channel: Channel) -> None:
        if self._closed is not None:
            self._closed.set()

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        exchange = Exchange(channel, 0, 0, 1, None, 0.0)
        channel.begin(exchange)
        reply(exchange, [buffer[start:end]])


@asynccontextmanager
async def listening(
    quotas: ConnectionQuotas,
    max_idle_s: float = 600.0,
    closed: asyncio.Event | None = None,
    name: str = "PLAINTEXT",
) -> AsyncIterator[Listener]:
    loop = asyncio.get_running_loop()
    sock = bind(Endpoint("PLAINTEXT", "127.0.0.1", 0))
    limits = ConnectionLimits(1 << 20, MemoryBudget(1 << 30), FairQueue(loop))
    if name not in quotas.listeners:
        quotas.add_listener(name)
    listener = Listener(
        name,
        sock,
        Echo(closed),
        Round(loop),
        loop,
        quotas,
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
        quotas = ConnectionQuotas()
        closed = asyncio.Event()
        async with listening(quotas, closed=closed) as listener:
            got, writer = await echo(listener.port)
            assert got == b"hello"
            assert listener.connections == quotas.open == 1
            await close(writer)
            await closed.wait()
            assert quotas.open == listener.connections == 0
            assert listener.accepted == 1

    asyncio.run(asyncio.wait_for(main(), 20))


def test_one_host_gets_no_more_than_its_share() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas()
        quotas.set_host_limits(1)
        async with listening(quotas) as listener:
            _, writer = await echo(listener.port)
            reader, second = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await reader.read(1) == b"", "the second is closed at once"
            assert quotas.refused == 1
            await close(second)
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_host_that_comes_too_fast_is_closed_after_a_delay() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas(window=QuotaWindow(2, 100))
        quotas.set_host_rate("127.0.0.1", 0)
        async with listening(quotas) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"\x00\x00\x00\x05hello")
            # With the request unread it is a reset.
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(1) == b""
            assert quotas.throttled == 1
            assert quotas.open == listener.accepted == 0
            await _gone(writer)
            quotas.set_host_rate("127.0.0.1", None)
            got, again = await echo(listener.port)
            assert got == b"hello"
            await close(again)
            # One that still waits to be closed goes with the listener.
            quotas.set_host_rate(None, 0)
            _, late = await asyncio.open_connection("127.0.0.1", listener.port)
        await _gone(late)

    asyncio.run(asyncio.wait_for(main(), 20))


async def _gone(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_a_throttled_connection_is_not_idle_and_holds_up_no_stop() -> None:
    async def main() -> None:
        closed = asyncio.Event()
        async with listening(ConnectionQuotas(), 0.2, closed) as listener:
            _, writer = await echo(listener.port)
            (connection,) = listener._connections.values()
            connection.throttle()
            # Several sweeps.
            await asyncio.sleep(0.5)
            assert not closed.is_set()
            assert listener.busy() == 0
            connection.end_throttle()
            await closed.wait()
            assert listener.closed_idle == 1
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_throttled_connection_whose_peer_has_left_is_closed_in_the_end() -> None:
    async def main() -> None:
        closed = asyncio.Event()
        async with listening(ConnectionQuotas(), 0.2, closed) as listener:
            _, writer = await echo(listener.port)
            (connection,) = listener._connections.values()
            connection.throttle()
            assert not connection.was_left_while_throttled()
            # Behind a request that is not read.
            writer.write(b"\x00\x00\x00\x05hello")
            await close(writer)
            await closed.wait()
            assert listener.closed_idle == 1

    asyncio.run(asyncio.wait_for(main(), 20))


def test_connections_over_the_limit_wait_for_others_to_leave() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas()
        quotas.set_limits(most=1)
        async with listening(quotas) as listener:
            _, first = await echo(listener.port)
            waiting = asyncio.create_task(echo(listener.port))
            # The kernel completes the handshake, so the one that waits has sent its request by the time it is let in.
            done, _ = await asyncio.wait({waiting}, timeout=0.2)
            assert not done
            assert listener.connections == 1
            await close(first)
            got, second = await waiting
            assert got == b"hello"
            await close(second)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_those_that_wait_are_let_in_when_the_limit_is_raised() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas()
        quotas.set_limits(most=0)
        async with listening(quotas) as listener:
            waiting = asyncio.create_task(echo(listener.port))
            done, _ = await asyncio.wait({waiting}, timeout=0.2)
            assert not done
            quotas.set_limits(most=1)
            got, writer = await waiting
            assert got == b"hello"
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_the_quietest_connections_go_when_the_limit_is_lowered() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas()
        async with listening(quotas) as listener:
            _, quiet = await echo(listener.port)
            _, lively = await echo(listener.port)
            quotas.set_limits(most=1)
            assert listener.connections == quotas.open == 1
            lively.write(b"\x00\x00\x00\x05again")
            await lively.drain()
            await close(quiet)
            await close(lively)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_connection_between_brokers_pushes_out_one_of_a_client() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas()
        quotas.add_listener("INTERNAL", protected=True)
        quotas.set_limits(most=1)
        async with listening(quotas) as clients, listening(quotas, name="INTERNAL") as brokers:
            _, client = await echo(clients.port)
            got, broker = await echo(brokers.port)
            assert got == b"hello"
            assert (clients.connections, brokers.connections) == (0, 1)
            await close(client)
            await close(broker)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_connections_over_the_rate_are_delayed_and_not_refused() -> None:
    async def main() -> None:
        quotas = ConnectionQuotas()
        quotas.set_limits(per_second=5)
        async with listening(quotas) as listener:
            began = asyncio.get_running_loop().time()
            # Five at once, and one every fifth of a second from then on.
            answers = await asyncio.gather(*(echo(listener.port) for _ in range(8)))
            assert [got for got, _ in answers] == [b"hello"] * 8
            assert asyncio.get_running_loop().time() - began >= 0.5
            assert quotas.refused == 0
            for _, writer in answers:
                await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_idle_connections_are_closed() -> None:
    async def main() -> None:
        async with listening(ConnectionQuotas(), max_idle_s=0.2) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await reader.read(1) == b""
            assert listener.closed_idle == 1
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("max_idle_s", [0.0, -0.001, -1.0])
def test_idle_connections_are_kept_for_ever_where_asked(max_idle_s: float) -> None:
    async def main() -> None:
        async with listening(ConnectionQuotas(), max_idle_s=max_idle_s) as listener:
            got, writer = await echo(listener.port)
            assert got == b"hello"
            # Several times the pause between two sweeps of a listener that does close.
            await asyncio.sleep(0.2)
            assert (listener.connections, listener.closed_idle) == (1, 0)
            await close(writer)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_taken_port_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} on 127.0.0.1 is taken .* --listen"):
            bind(Endpoint("PLAINTEXT", "127.0.0.1", port))


def test_a_foreign_address_is_told_with_what_to_do() -> None:
    with pytest.raises(UserError, match="not an address of this machine"):
        bind(Endpoint("PLAINTEXT", "192.0.2.1", 9092))
