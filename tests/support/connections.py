"""A connection over a socket pair, and a handler that keeps what it is given."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.connection import (
    Connection,
    ConnectionLimits,
)
from braidlog.net.exchange import Exchange
from braidlog.net.fair_queue import FairQueue
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from support.exchanges import reply


class Recorder(FrameHandler):
    """Keeps what it is given; answers with an echo, at once or when told to."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.pending: list[Exchange] = []
        self.hold = False
        self.now = 1.0
        # How long each request takes, by the clock that exchanges are stamped with.
        self.takes_s = 0.0
        self.closed: list[Channel] = []

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        frame = buffer[start:end]
        self.frames.append(frame)
        self.now += self.takes_s
        exchange = Exchange(channel, 0, 0, len(self.frames), None, self.now)
        channel.begin(exchange)
        if self.hold:
            channel.mute()
            self.pending.append(exchange)
        else:
            reply(exchange, [frame])

    def channel_closed(self, channel: Channel) -> None:
        self.closed.append(channel)


class World:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.handler = Recorder()
        self.memory = MemoryBudget(256 << 20)
        self.limits = ConnectionLimits(8 << 20, self.memory, FairQueue(self.loop))
        self.reasons: list[str] = []
        self.warmed: list[FileSlice] = []
        self.connection = Connection(
            self.near,
            self.handler,
            Round(self.loop),
            self.loop,
            self.limits,
            self._warm,
            "PLAINTEXT",
            "127.0.0.1",
            lambda connection, reason: self.reasons.append(reason),
        )
        self.connection.start()

    def _warm(self, part: FileSlice, done: Callable[[], None]) -> None:
        self.warmed.append(part)
        self.loop.call_soon(done)

    def turn(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.far.send(view) :]
            except BlockingIOError:
                self.turn()
        self.turn()

    def receive(self) -> bytes:
        got = b""
        while True:
            try:
                piece = self.far.recv(1 << 20)
            except BlockingIOError:
                self.turn()
                try:
                    piece = self.far.recv(1 << 20)
                except BlockingIOError:
                    return got
            if not piece:
                return got
            got += piece

    def close(self) -> None:
        self.connection.close("test over")
        self.far.close()
        self.loop.close()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
