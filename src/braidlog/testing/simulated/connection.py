"""Connections in memory between clients and simulated brokers.

Bytes keep their order and take their time. What a client sends arrives whole or in pieces; a client that reads slowly
lets the broker's replies wait, file ranges unread. When a process ends, what it had sent may still arrive or not, and
then its peer learns that the connection is gone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from random import Random
from struct import unpack_from
from typing import Final, NamedTuple, Protocol, TypeVarTuple, Unpack
from zlib import crc32

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK, Piece
from braidlog.net.round import Round
from braidlog.testing.simulated.loop import Process, SimulatedLoop

_LATENCY_S: Final = 0.001
# One reply in so many finds its reader busy, for at most so long.
_SLOW_ONE_IN: Final = 12
_SLOW_S: Final = 0.2
_CUT_ONE_IN: Final = 4

# Takes what a line of the trace is made of.
Trace = Callable[..., None]
Ts = TypeVarTuple("Ts")


class Link:
    """The way from one host to another, for all connections between them.

    While it is blocked nothing arrives; TCP sends it again until it does, so it comes late, and in order.
    """

    def __init__(self) -> None:
        self.latency_s = _LATENCY_S
        self.blocked = False
        self._waiting: list[_Direction] = []

    def unblock(self) -> None:
        self.blocked = False
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.go_on()

    def wait(self, direction: _Direction) -> None:
        self._waiting.append(direction)


class _Delivery(NamedTuple):
    """One that waits at a link which is blocked."""

    what: Callable[[bytes], None]
    data: bytes
    # Before which drop it was sent.
    drops: int


class _Direction:
    """One direction of a connection: deliveries in order, each a little later than it was sent."""

    def __init__(self, loop: SimulatedLoop, random: Random, link: Link) -> None:
        self._loop = loop
        self._random = random
        self._link = link
        self._last = 0.0
        self._drops = 0
        # What has come as far as a link that is blocked.
        self._held: list[_Delivery] = []
        self._to: Process | None = None

    def deliver(self, to: Process, what: Callable[[bytes], None], data: bytes) -> None:
        self._to = to
        self._schedule(to, self._arrive, what, data, self._drops)

    def _schedule(self, to: Process, call: Callable[[Unpack[Ts]], None], *arguments: *Ts) -> None:
        self._last = max(self._last, self._loop.time()) + self._random.random() * self._link.latency_s
        self._loop.call_at(self._last, call, *arguments, context=to.context.copy())

    def _arrive(self, what: Callable[[bytes], None], data: bytes, drops: int) -> None:
        if self._held or self._link.blocked:
            if not self._held:
                self._link.wait(self)
            self._held.append(_Delivery(what, data, drops))
        elif drops == self._drops:
            what(data)

    def go_on(self) -> None:
        assert self._to is not None
        self._schedule(self._to, self._deliver_held)

    def _deliver_held(self) -> None:
        if self._link.blocked:
            self._link.wait(self)
            return
        held, self._held = self._held, []
        for delivery in held:
            if delivery.drops == self._drops:
                delivery.what(delivery.data)

    def drop(self) -> None:
        """What is under way never arrives."""
        self._drops += 1


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
        now = asyncio.get_running_loop().time()
        self.round.before_read(now)
        try:
            self._handle_frames()
        finally:
            self.round.after_read()
            self.round.last_read = now

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


class WireTap(Protocol):
    """Sees every frame that clients and brokers exchange, without its size; must not change anything."""

    def on_request(self, connection: SimulatedConnection, frame: bytes) -> None:
        """It was sent, and may never arrive."""
        ...

    def on_response(self, connection: SimulatedConnection, frame: bytes) -> None:
        """The client has it."""
        ...

    def on_end(self, connection: SimulatedConnection) -> None:
        """Nothing more is sent or received."""
        ...


class _Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._data += data
        while len(self._data) >= 4:
            (size,) = unpack_from(">i", self._data)
            if len(self._data) < 4 + size:
                return
            frame, self._data = self._data[4 : 4 + size], self._data[4 + size :]
            yield frame


class SimulatedConnection:
    """A client's connection to a broker: a `net.outbound.transport.Transport` at one end, a Channel at the other."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        client: Process,
        name: str,
        peer: str,
        trace: Trace,
        tap: WireTap | None = None,
        there: Link | None = None,
        back: Link | None = None,
    ) -> None:
        """`there` and `back` are the links to the broker's host and from it."""
        self.name = name
        self.peer = peer
        self.client = client
        # Why nothing is sent or received any more.
        self.lost: str | None = None
        self._loop = loop
        self._random = random
        self._trace = trace
        self._tap = tap
        self._to_broker = _Direction(loop, random, there or Link())
        self._to_client = _Direction(loop, random, back or Link())
        self._requests = _Frames()
        self._responses = _Frames()
        self._received = bytearray()
        self._on_readable: Callable[[], None] | None = None
        self._on_lost: Callable[[OSError], None] | None = None

    def accept(self, broker: Process, handler: FrameHandler, round_: Round, memory: MemoryBudget) -> None:
        """The broker's end; before anything is sent."""
        self._broker = broker
        self._channel = SimulatedChannel(handler, round_, memory, self, self.name)

    # The client's side

    @property
    def unsent(self) -> int:
        return 0

    @property
    def is_direct(self) -> bool:
        return False

    def start(self, on_readable: Callable[[], None], on_lost: Callable[[OSError], None]) -> None:
        self._on_readable = on_readable
        self._on_lost = on_lost

    def expect(self, size: int) -> None:
        pass

    def send(self, pieces: Sequence[Piece]) -> None:
        """They arrive together, or cut somewhere else."""
        if self.lost is not None:
            # Later, as a socket does it: the sender is in the middle of something.
            self._loop.call_soon(self._report_loss, ConnectionResetError(self.lost))
            return
        data = b"".join(pieces)
        self._trace(self.name, "sends", len(data), "bytes", crc32(data))
        if self._tap is not None:
            for frame in self._requests.feed(data):
                self._tap.on_request(self, frame)
        cuts = [0, len(data)]
        if self._random.randrange(_CUT_ONE_IN) == 0:
            cuts = sorted({*cuts, *(self._random.randint(0, len(data)) for _ in range(3))})
        for start, end in itertools.pairwise(cuts):
            self._to_broker.deliver(self._broker, self._channel.receive, data[start:end])

    def _report_loss(self, problem: OSError) -> None:
        if self._on_lost is not None:
            self._on_lost(problem)

    def receive_into(self, view: memoryview) -> int:
        count = min(len(view), len(self._received))
        if count == 0:
            return WOULD_BLOCK if self.lost is None else ENDED
        view[:count] = self._received[:count]
        del self._received[:count]
        return count

    def _receive(self, data: bytes) -> None:
        if self.lost is not None:
            # A broker that has not learned of it yet goes on sending.
            return
        self._trace(self.name, "receives", len(data), "bytes", crc32(data))
        if self._tap is not None:
            for frame in self._responses.feed(data):
                self._tap.on_response(self, frame)
        self._received += data
        if self._on_readable is not None:
            self._on_readable()

    def close(self) -> None:
        """By the client; requests under way may still be served."""
        self._on_readable = self._on_lost = None
        self._hang_up("the client closed it")

    def cut(self) -> None:
        """The network loses it: each side learns that the other is gone."""
        if self._hang_up("the connection was cut") and self._on_readable is not None:
            self._loop.call_soon(self._on_readable, context=self.client.context.copy())

    def _hang_up(self, reason: str) -> bool:
        if self.lost is not None:
            return False
        self._end(reason)
        self._to_client.drop()
        self._to_broker.deliver(self._broker, self._channel.hang_up, b"")
        return True

    def _lose(self, reason: bytes) -> None:
        if self.lost is None:
            self._end(reason.decode())
            if self._on_readable is not None:
                self._on_readable()

    def _end(self, reason: str) -> None:
        self.lost = reason
        self._trace(self.name, "lost:", reason)
        if self._tap is not None:
            self._tap.on_end(self)

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
        self._to_client.deliver(self.client, self._receive, data)

    def closed_by_broker(self, reason: str) -> None:
        self._to_client.deliver(self.client, self._lose, f"closed by the broker: {reason}".encode())

    def broker_ended(self) -> None:
        """The broker's process is gone: perhaps its last bytes still come, then the news."""
        self._to_broker.drop()
        if self._random.random() < 0.5:
            self._to_client.drop()
        self._to_client.deliver(self.client, self._lose, b"the broker is gone")
