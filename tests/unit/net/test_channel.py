from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from braidlog.net.channel import BACKLOG_HIGH
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.produce import ProduceResponse
from support.connections import World, frame
from support.exchanges import reply


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_while_muted_no_further_frame_is_handled(world: World) -> None:
    world.handler.hold = True
    world.send(frame(b"slow") + frame(b"next"))
    world.send(frame(b"last"))
    assert world.handler.frames == [b"slow"]
    world.handler.hold = False
    reply(world.handler.pending[0], [b"done"])
    world.turn()
    assert world.handler.frames == [b"slow", b"next", b"last"]
    assert world.receive() == b"donenextlast"


def test_while_throttled_no_further_frame_is_handled_but_replies_are_sent(world: World) -> None:
    world.connection.throttle()
    world.send(frame(b"next"))
    assert world.handler.frames == []
    world.connection.end_throttle()
    world.turn()
    assert world.handler.frames == [b"next"]
    assert world.receive() == b"next"


def test_a_throttle_that_begins_with_a_reply_holds_what_came_with_it(world: World) -> None:
    world.handler.hold = True
    world.send(frame(b"slow") + frame(b"next"))
    world.handler.hold = False
    world.connection.throttle()
    reply(world.handler.pending[0], [b"done"])
    world.turn()
    assert world.receive() == b"done"
    assert world.handler.frames == [b"slow"]
    assert world.connection.waits_for_broker
    assert world.connection.open_exchanges == 0
    world.connection.last_active = 0.0
    world.connection.end_throttle()
    world.turn()
    assert world.connection.last_active > 0.0
    assert world.handler.frames == [b"slow", b"next"]
    assert world.receive() == b"next"


def test_the_end_of_a_throttle_does_not_unmute_a_request_in_progress(world: World) -> None:
    world.handler.hold = True
    world.send(frame(b"slow") + frame(b"next"))
    world.connection.throttle()
    world.connection.end_throttle()
    world.turn()
    assert world.handler.frames == [b"slow"]


def test_a_throttled_channel_can_be_closed(world: World) -> None:
    world.connection.throttle()
    world.connection.close("gone")
    world.connection.end_throttle()
    assert world.connection.closed


def test_replies_keep_the_order_of_requests(world: World) -> None:
    channel = world.connection
    first, second = (Exchange(channel, 0, 0, number, None, 0.0) for number in (1, 2))
    channel.begin(first)
    channel.begin(second)
    reply(second, [b"2"])
    world.turn()
    assert world.receive() == b""
    reply(first, [b"1"])
    world.turn()
    assert world.receive() == b"12"


def test_answering_twice_is_a_bug_that_shows(world: World) -> None:
    exchange = Exchange(world.connection, 0, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    exchange.answer(ProduceResponse())
    with pytest.raises(RuntimeError, match="answered twice"):
        exchange.answer(ProduceResponse())


def test_a_silent_finish_sends_nothing_but_keeps_the_order(world: World) -> None:
    channel = world.connection
    first, second = (Exchange(channel, 0, 0, number, None, 0.0) for number in (1, 2))
    channel.begin(first)
    channel.begin(second)
    reply(second, [b"2"])
    first.finish_silently()
    world.turn()
    assert world.receive() == b"2"


def test_a_reply_to_a_closed_connection_is_dropped(world: World) -> None:
    exchange = Exchange(world.connection, 0, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    world.connection.close("gone")
    reply(exchange, [b"too late"])
    world.turn()
    assert world.receive() == b""


def test_a_peer_that_does_not_read_its_many_small_answers_is_not_read_from(world: World) -> None:
    """A request that is answered at once never mutes: what is unsent must hold back the next ones."""
    requests = frame(bytes(1000)) * 40_000
    sent = 0
    for _ in range(400):
        with contextlib.suppress(BlockingIOError):
            sent += world.far.send(requests[sent : sent + (1 << 18)])
        world.turn(2)
    handled = len(world.handler.frames)
    # The kernel's buffers and ours: a few megabytes of forty.
    assert handled < 15_000
    assert world.connection.unsent < 2 * BACKLOG_HIGH
    got = world.receive()
    while sent < len(requests):
        try:
            sent += world.far.send(requests[sent : sent + (1 << 18)])
        except BlockingIOError:
            world.turn()
        got += world.receive()
    assert len(world.handler.frames) == 40_000
    assert len(got) == 40_000 * 1000
    assert world.connection.unsent == 0


def large_produce(size: int) -> bytes:
    """A frame whose first bytes say Produce: records are not decoded, so it takes no more than its size."""
    return frame(bytes(2) + bytes(size - 2))


def test_the_memory_of_a_large_request_is_held_until_it_is_answered(world: World) -> None:
    world.handler.hold = True
    world.send(large_produce(1 << 20))
    assert world.memory.requests.used == (1 << 20) + 4
    reply(world.handler.pending[0], [b"done"])
    world.turn()
    assert world.memory.requests.used == 0


def test_the_memory_of_a_large_request_is_free_when_its_peer_is_gone(world: World) -> None:
    world.send(large_produce(1 << 20)[: 1 << 19])
    assert world.memory.requests.used > 1 << 19
    world.far.shutdown(socket.SHUT_WR)
    world.turn()
    assert world.connection.closed
    assert world.memory.requests.used == 0
