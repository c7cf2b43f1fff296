from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from braidlog.net.outbound.transport import WOULD_BLOCK, PlainTransport


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[PlainTransport, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    transport = PlainTransport(asyncio.get_running_loop(), near)
    try:
        yield transport, far
    finally:
        transport.close()
        far.close()


async def drain(far: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    found = b""
    while len(found) < size:
        found += await loop.sock_recv(far, 1 << 20)
    return found


async def test_pieces_of_any_number_arrive_in_order() -> None:
    async with pair() as (transport, far):
        transport.send([b"one "])
        transport.send([b"two ", b"", memoryview(b"three ")])
        transport.send([b"%d " % number for number in range(3000)])
        expected = b"one two three " + b"".join(b"%d " % number for number in range(3000))
        assert await drain(far, len(expected)) == expected
        assert transport.unsent == 0


async def test_what_the_socket_does_not_take_waits_and_keeps_its_order() -> None:
    async with pair() as (transport, far):
        large = bytes(8 << 20)
        transport.send([large])
        assert transport.unsent > 0
        transport.send([b"after"])
        found = await drain(far, len(large) + 5)
        assert found == large + b"after"
        assert transport.unsent == 0


async def test_reading_says_when_there_is_nothing_and_when_the_peer_ended() -> None:
    async with pair() as (transport, far):
        room = memoryview(bytearray(10))
        assert transport.receive_into(room) == WOULD_BLOCK
        readable = asyncio.Event()
        transport.start(readable.set, lambda problem: None)
        far.send(b"abc")
        await readable.wait()
        assert transport.receive_into(room) == 3
        assert bytes(room[:3]) == b"abc"
        far.close()
        assert transport.receive_into(room) == 0


async def test_a_broken_connection_is_told_later_and_once_nothing_waits() -> None:
    async with pair() as (transport, far):
        lost: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
        transport.start(lambda: None, lost.set_result)
        far.close()
        transport.send([b"abc"])
        assert not lost.done()
        assert isinstance(await lost, BrokenPipeError)
        assert transport.unsent == 0


async def test_another_thread_may_read_and_hand_back() -> None:
    async with pair() as (transport, far):
        readable = asyncio.Event()
        transport.start(readable.set, lambda problem: None)
        transport.pause_reader()
        far.send(b"abc")
        room = memoryview(bytearray(10))
        transport.wait_readable(5.0)
        assert await asyncio.to_thread(transport.wait_into, room) == 3
        assert not readable.is_set()
        transport.wait_readable(-1.0)
        transport.resume_reader()
        far.send(b"d")
        await readable.wait()
        assert transport.receive_into(room) == 1


async def test_a_closed_transport_stays_closed() -> None:
    async with pair() as (transport, _):
        transport.close()
        transport.close()
        transport.resume_reader()
