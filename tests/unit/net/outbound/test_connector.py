"""An address becomes a transport, or an error that says what to look at."""

from __future__ import annotations

import asyncio
import socket

import pytest

from braidlog.net.outbound import connector
from braidlog.net.outbound.connector import SocketConnector, in_own_thread
from braidlog.net.outbound.errors import ConnectionRefused, NoConnection
from braidlog.net.outbound.transport import PlainTransport, Transport


async def clear_text(loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
    return PlainTransport(loop, connected)


@pytest.mark.parametrize(
    ("host", "is_one"), [("127.0.0.1", True), ("::1", True), ("localhost", False), ("1.2.3", False), ("é", False)]
)
def test_an_address_is_told_from_a_name(host: str, is_one: bool) -> None:
    assert connector._is_address(host) is is_one


async def test_buffers_have_the_sizes_that_were_asked_for() -> None:
    sizes: list[int] = []

    async def look(loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        sizes.append(connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        return PlainTransport(loop, connected)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = SocketConnector(look, 5.0, buffer_sizes={socket.SO_SNDBUF: 8192})
        transport = await made.connect(listener.getsockname())
        assert transport.peer.startswith("127.0.0.1")
        transport.close()
    # Linux doubles what it is asked for.
    assert sizes[0] in (8192, 16384)


@pytest.mark.parametrize(("setting", "doubt"), [("", r"running\?"), ("some.setting", r"and is some\.setting right\?")])
async def test_an_address_that_refuses_is_doubted_where_a_user_gave_it(setting: str, doubt: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        made = SocketConnector(clear_text, 5.0, setting_of=lambda _: setting)
        with pytest.raises(ConnectionRefused, match=doubt):
            await made.connect(unused.getsockname())


async def test_a_handshake_that_breaks_is_a_lost_connection() -> None:
    async def break_off(loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        raise ConnectionResetError("gone")

    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(NoConnection, match=r"broke \(gone\)"):
        await SocketConnector(break_off, 5.0).connect(listener.getsockname())


async def test_the_next_address_of_a_name_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:

        async def resolved(_: str, __: int) -> list[object]:
            places = [first.getsockname(), second.getsockname()]
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

        monkeypatch.setattr(connector, "_resolved", resolved)
        made = SocketConnector(clear_text, 5.0)
        address = ("name", 1)
        for listener in (first, second, first):
            transport = await made.connect(address)
            listener.accept()[0].close()
            transport.close()
            problem = NoConnection("it hung up")
            assert await made.explain(address, problem) is problem


async def test_a_call_that_blocks_has_a_thread_of_its_own() -> None:
    assert await in_own_thread("test", lambda: 7) == 7

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await in_own_thread("test", fail)
