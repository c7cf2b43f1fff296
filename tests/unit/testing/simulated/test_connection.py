from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange
from braidlog.net.memory import MemoryBudget
from braidlog.net.outbound.transport import ENDED
from braidlog.net.round import Round
from braidlog.testing.simulated.connection import SimulatedConnection
from braidlog.testing.simulated.loop import Process, SimulatedLoop
from support.exchanges import reply


class Echo(FrameHandler):
    """Answers each request with itself; those that begin with `slow` take a second and mute the connection."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.seen: list[bytes] = []
        self.closed = 0

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        (correlation,) = struct.unpack_from(">i", buffer, start)
        text = buffer[start + 4 : end]
        self.seen.append(text)
        exchange = Exchange(channel, 0, 0, correlation, None, 0.0)
        channel.begin(exchange)
        body = FileSlice(_Text(text), 0, len(text))
        parts = [struct.pack(">ii", 4 + len(text), correlation), body]
        if text.startswith(b"slow"):
            channel.mute()
            self.loop.call_later(1.0, reply, exchange, parts)
        else:
            reply(exchange, parts)

    def channel_closed(self, channel: Channel) -> None:
        self.closed += 1


class _Text:
    def __init__(self, text: bytes) -> None:
        self._text = text

    def fileno(self) -> int:
        raise OSError("none")

    def pread(self, size: int, position: int) -> bytes:
        return self._text[position : position + size]


def frame(correlation: int, text: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(text), correlation) + text


class Net:
    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.loop = SimulatedLoop(random)  # type: ignore[abstract]
        self.handler = Echo(self.loop)
        # A request has arrived by then, its answer mostly not.
        self.until_heard = 0.0012
        self.broker = Process("broker")
        round_ = Round(self.loop)
        self.wire = SimulatedConnection(
            self.loop, random, Process("client"), "wire", "broker:9092", lambda *parts: None
        )
        self.wire.accept(self.broker, self.handler, round_, MemoryBudget(1 << 30))
        self.wire.start(self._on_readable, self._on_lost)
        self._received = b""
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    async def ask(self, correlation: int, text: bytes) -> bytes:
        answer: asyncio.Future[bytes] = self.loop.create_future()
        self._waiting.append(answer)
        self.wire.send([frame(correlation, text)])
        return await asyncio.wait_for(answer, 30.0)

    def _on_readable(self) -> None:
        view = memoryview(bytearray(1000))
        while (count := self.wire.receive_into(view)) > 0:
            self._received += view[:count]
        while len(self._received) >= 4 and len(self._received) >= (
            end := 4 + int.from_bytes(self._received[:4], "big")
        ):
            self._waiting.popleft().set_result(self._received[4:end])
            self._received = self._received[end:]
        if count == ENDED:
            self._on_lost(ConnectionResetError(self.wire.lost))

    def _on_lost(self, problem: OSError) -> None:
        while self._waiting:
            self._waiting.popleft().set_exception(problem)


def run(seed: int, work: Callable[[Net], Coroutine[Any, Any, None]]) -> Net:
    net = Net(seed)
    net.loop.run_until_complete(work(net))
    assert net.loop.problems == []
    return net


@pytest.mark.parametrize("seed", range(20))
def test_pipelined_requests_arrive_whole_and_are_answered_in_order(seed: int) -> None:
    texts = [b"slow one", b"two" * 50, b"", b"slow four", b"five"]

    async def work(net: Net) -> None:
        answers = await asyncio.gather(*[net.ask(number, text) for number, text in enumerate(texts)])
        assert [answer[4:] for answer in answers] == texts
        assert net.handler.seen == texts
        assert net.loop.time() > 2.0

    run(seed, work)


@pytest.mark.parametrize("seed", range(20))
def test_whoever_waits_for_a_broker_that_is_gone_is_told(seed: int) -> None:
    async def work(net: Net) -> None:
        asked = asyncio.ensure_future(net.ask(1, b"slow"))
        await asyncio.sleep(0.5)
        net.loop.end(net.broker)
        net.wire.broker_ended()
        with pytest.raises(ConnectionResetError):
            await asked
        with pytest.raises(ConnectionResetError):
            await net.ask(2, b"more")

    run(seed, work)


def test_the_last_words_of_a_broker_may_still_arrive() -> None:
    outcomes: set[bool] = set()
    for seed in range(40):

        async def work(net: Net) -> None:
            asked = asyncio.ensure_future(net.ask(1, b"hello"))
            await asyncio.sleep(net.until_heard)
            net.loop.end(net.broker)
            net.wire.broker_ended()
            await asyncio.wait([asked])
            outcomes.add(asked.exception() is None)

        run(seed, work)
    assert outcomes == {True, False}


def test_hanging_up_closes_the_brokers_side() -> None:
    async def work(net: Net) -> None:
        asked = asyncio.ensure_future(net.ask(1, b"slow"))
        await asyncio.sleep(0.1)
        net.wire.close()
        await asyncio.sleep(5)
        assert not asked.done(), "who closes is not called back"
        asked.cancel()

    assert run(3, work).handler.closed == 1


def test_a_cut_is_noticed_on_both_sides() -> None:
    async def work(net: Net) -> None:
        asked = asyncio.ensure_future(net.ask(1, b"slow"))
        await asyncio.sleep(0.1)
        net.wire.cut()
        with pytest.raises(ConnectionResetError, match="cut"):
            await asked
        await asyncio.sleep(5)

    assert run(3, work).handler.closed == 1


def test_a_tap_sees_whole_frames() -> None:
    class Tap:
        def __init__(self) -> None:
            self.seen: list[tuple[str, bytes]] = []

        def on_request(self, connection: SimulatedConnection, frame: bytes) -> None:
            self.seen.append(("request", frame[4:]))

        def on_response(self, connection: SimulatedConnection, frame: bytes) -> None:
            self.seen.append(("response", frame[4:]))

        def on_end(self, connection: SimulatedConnection) -> None:
            self.seen.append(("end", b""))

    tap = Tap()

    async def work(net: Net) -> None:
        net.wire._tap = tap
        await asyncio.gather(net.ask(1, b"slow"), net.ask(2, b"two" * 100))
        net.wire.close()

    run(5, work)
    texts = [b"slow", b"two" * 100]
    assert tap.seen == [*(("request", text) for text in texts), *(("response", text) for text in texts), ("end", b"")]


def test_a_closing_broker_is_noticed() -> None:
    async def work(net: Net) -> None:
        await net.ask(1, b"hello")
        net.wire._channel.close("enough")
        await asyncio.sleep(1)
        assert net.wire.lost == "closed by the broker: enough"

    run(3, work)
