"""Connections in memory between scripted clients and a simulated broker.

Bytes keep their order and take their time. What a client sends arrives whole or in pieces; a client that reads slowly
lets the broker's replies wait, file ranges unread. When a process ends, what it had sent may still arrive or not, and
then its peer learns that the connection is gone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from struct import unpack_from
from typing import Final

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.testing.simulated.loop import Process, SimulatedLoop

_LATENCY_S: Final = 0.001
# One reply in so many finds its reader busy, for at most so long.
_SLOW_ONE_IN: Final = 12
_SLOW_S: Final = 0.2
_CUT_ONE_IN: Final = 4

Trace = Callable[[str], None]


class ConnectionLost(Exception):
    """The peer is gone; what became of unanswered requests is unknown."""


class _Direction:
    """One direction of a connection: deliveries in order, each a little later than it was sent."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._last = 0.0
        self._open = True

    def later(self) -> float:
        self._last = max(self._last, self._loop.time()) + self._random.random() * _LATENCY_S
        return self._last

    def deliver(self, to: Process, what: Callable[[bytes], None], data: bytes) -> None:
        self._loop.call_at(self.later(), self._arrive, what, data, context=to.context.copy())

    def _arrive(self, what: Callable[[bytes], None], data: bytes) -> None:
        if self._open:
            what(data)

    def drop(self) -> None:
        """What is under way never arrives."""
        self._open = False


class SimulatedChannel(Channel):
    """The broker's end; all of it runs in the broker's process."""

    def __init__(
        self, handler: FrameHandler, round_: Round, memory: MemoryBudget, wire: SimulatedConnection, name: str
    ) -> None:
        super().__init__(handler, round_, memory, "PLAINTEXT", name)
        self._wire = wire
        self._received = b""
        self._unsent: list[Part] = []

    def receive(self, data: bytes) -> None:
        if self.closed:
            return
        self._received += data
        self._handle_frames()
        self.round.after_read()

    def _handle_frames(self) -> None:
        """Every whole frame, unless one of them needs time: the rest is then held until `resume`."""
        while len(self._received) >= 4 and not (self.muted or self.backlogged or self.closed):
            (size,) = unpack_from(">i", self._received)
            end = 4 + size
            if len(self._received) < end:
                return
            frame, self._received = self._received[4:end], self._received[end:]
            self.handler.handle_frame(self, frame, 0, size)

    def resume(self) -> None:
        self._handle_frames()

    def send(self, parts: list[Part]) -> None:
        waiting = bool(self._unsent)
        self._unsent.extend(parts)
        if waiting:
            return
        delay = self._wire.until_read()
        if delay > 0.0:
            self._wire.call_later(delay, self._on_writable)
        else:
            self._push()

    def _on_writable(self) -> None:
        if not self.closed:
            self._push()
            self.resume_if_ready()

    def _push(self) -> None:
        parts, self._unsent = self._unsent, []
        try:
            data = b"".join([part.read() if isinstance(part, FileSlice) else part for part in parts])
        except OSError as problem:
            self.close(f"sending failed: {problem.strerror}")
            return
        self.unsent -= len(data)
        self._wire.to_client(data)

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._unsent = []
        self.forget()
        self.handler.channel_closed(self)
        self._wire.closed_by_broker(reason)

    def hang_up(self, nothing: bytes) -> None:
        self.close("the client hung up")


class SimulatedConnection:
    """One connection; `ask` returns the reply's frame, whose correlation id the caller chose."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        client: Process,
        broker: Process,
        handler: FrameHandler,
        round_: Round,
        memory: MemoryBudget,
        name: str,
        trace: Trace,
    ) -> None:
        self.name = name
        self.lost: str | None = None
        self._loop = loop
        self._random = random
        self._client = client
        self._broker = broker
        self._trace = trace
        self._to_broker = _Direction(loop, random)
        self._to_client = _Direction(loop, random)
        self._channel = SimulatedChannel(handler, round_, memory, self, name)
        self._arrived = b""
        # Correlation ids of requests that will be answered, in the order they were sent.
        self._asked: deque[tuple[int, asyncio.Future[bytes]]] = deque()

    # The client's side

    def send(self, frame: bytes) -> None:
        """Deliver a frame, perhaps in pieces."""
        if self.lost is not None:
            raise ConnectionLost(self.lost)
        self._trace(f"{self.name} sends {len(frame)} bytes")
        cuts = [0, len(frame)]
        if self._random.randrange(_CUT_ONE_IN) == 0:
            cuts = sorted({*cuts, *(self._random.randint(0, len(frame)) for _ in range(3))})
        for start, end in itertools.pairwise(cuts):
            self._to_broker.deliver(self._broker, self._channel.receive, frame[start:end])

    async def ask(self, frame: bytes, correlation_id: int, timeout_s: float) -> bytes:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self.send(frame)
        self._asked.append((correlation_id, answer))
        async with asyncio.timeout(timeout_s):
            return await answer

    def _receive(self, data: bytes) -> None:
        self._arrived += data
        while len(self._arrived) >= 4:
            (size,) = unpack_from(">i", self._arrived)
            if len(self._arrived) < 4 + size:
                return
            frame, self._arrived = self._arrived[4 : 4 + size], self._arrived[4 + size :]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        (correlation_id,) = unpack_from(">i", frame)
        expected, answer = self._asked.popleft()
        if correlation_id != expected:
            raise AssertionError(f"{self.name}: the reply to {correlation_id} came before that to {expected}")
        self._trace(f"{self.name} receives {len(frame)} bytes for {correlation_id}")
        if not answer.done():
            answer.set_result(frame)

    def hang_up(self) -> None:
        """The client closes; requests under way may still be served."""
        if self.lost is None:
            self.lost = "this side hung up"
            self._to_client.drop()
            self._to_broker.deliver(self._broker, self._channel.hang_up, b"")
            self._fail_asked()

    def _lose(self, reason: bytes) -> None:
        if self.lost is None:
            self.lost = reason.decode()
            self._trace(f"{self.name} lost: {self.lost}")
            self._fail_asked()

    def _fail_asked(self) -> None:
        while self._asked:
            _, answer = self._asked.popleft()
            if not answer.done():
                answer.set_exception(ConnectionLost(self.lost))

    # The broker's side

    @property
    def busy(self) -> bool:
        return self._channel.open_exchanges > 0

    def until_read(self) -> float:
        """Seconds until the client reads what it is sent now; mostly it waits for it."""
        return self._random.random() * _SLOW_S if self._random.randrange(_SLOW_ONE_IN) == 0 else 0.0

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self._loop.call_later(delay, callback)

    def to_client(self, data: bytes) -> None:
        self._to_client.deliver(self._client, self._receive, data)

    def closed_by_broker(self, reason: str) -> None:
        self._to_client.deliver(self._client, self._lose, f"closed by the broker: {reason}".encode())

    def broker_ended(self) -> None:
        """The broker's process is gone: perhaps its last bytes still come, then the news."""
        self._to_broker.drop()
        if self._random.random() < 0.5:
            self._to_client.drop()
            self._loop.call_at(
                self._to_client.later(), self._lose, b"the broker is gone", context=self._client.context.copy()
            )
        else:
            self._to_client.deliver(self._client, self._lose, b"the broker is gone")
