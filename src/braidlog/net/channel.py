"""A peer's connection to the broker: requests in order in, replies in the same order out.

No further request of a peer is handled while

    muted      one of its requests needs time (a waiting fetch, a topic creation)
    throttled  its client is over a quota: it was answered, and its next requests wait for some time (KIP-219)
    backlogged     it has not read the answers to the earlier ones

A throttled channel is muted as well, and stays so until both are over.

What the transport is (a socket, TLS over a socket, a simulated connection) is the subclass's matter.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Final

from mypy_extensions import mypyc_attr

from braidlog.core.slices import FileSlice
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round

# A peer with this many bytes of unread answers is backlogged, until no more than the second are left.
BACKLOG_HIGH: Final = 1 << 20
BACKLOG_LOW: Final = 1 << 18

# The principal of a peer that has not said who it is.
ANONYMOUS: Final = "ANONYMOUS"

_numbers = itertools.count(1)


@mypyc_attr(allow_interpreted_subclasses=True)
class FrameHandler:
    """Who answers frames; the broker's dispatch is one."""

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        """Handle the request in `buffer[start:end]`; raising closes the connection."""
        raise NotImplementedError

    def channel_closed(self, channel: Channel) -> None:
        """The peer is gone: forget what was kept for it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Channel:
    # Requests of one peer that may be in progress before its further frames wait. More than one only while all are
    # of the kind that finishes within the round (see `Exchange`), which is what lets small produces be gathered.
    MAX_OPEN = 128

    def __init__(
        self, handler: FrameHandler, round_: Round, memory: MemoryBudget, listener: str, peer_host: str
    ) -> None:
        # The order in which connections came.
        self.number: int = next(_numbers)
        self.handler = handler
        self.round = round_
        self.memory = memory
        self.listener = listener
        self.peer_host = peer_host
        # Learnt from ApiVersions v3+: what software the peer says it is; shown to operators.
        self.client_software = "unknown"
        self.client_software_version = "unknown"
        # Who is behind the connection: a user's name, as the listener's authentication found it.
        self.principal = ANONYMOUS
        # Who lets the peer's requests pass to the others' handler; none where the listener asks for no login.
        self.authenticator: FrameHandler | None = None
        # The largest frame that is taken; a peer that has not logged in may be allowed less than the others.
        self.max_frame = 0
        self.closed = False
        self.muted = False
        self.throttled = False
        self.backlogged = False
        # Bytes of answers that the transport has not taken: in `_out`, and in what the subclass was given to send.
        self.unsent = 0
        # When the last request was taken up; what a turn's length is measured by.
        self.last_began = 0.0
        # Memory of the request being handed over, until its exchange has it.
        self.reserved = 0
        self._open: deque[Exchange] = deque()
        self._out: list[Part] = []
        self._in_round = False

    def begin(self, exchange: Exchange) -> None:
        """Take the exchange's place in the order of replies."""
        self.last_began = exchange.started
        if self.reserved:
            exchange.reserved = self.reserved
            self.reserved = 0
        self._open.append(exchange)
        if len(self._open) >= self.MAX_OPEN:
            self.muted = True

    def mute(self) -> None:
        """The request in progress needs time (a waiting fetch, a topic creation): hold the peer's next ones."""
        self.muted = True

    def throttle(self) -> None:
        """The peer's client is over a quota: hold its next requests until `end_throttle`."""
        self.muted = True
        self.throttled = True

    def end_throttle(self) -> None:
        self.throttled = False
        self.resume_if_ready()

    def on_finished(self) -> None:
        """Some exchange finished: queue every reply whose turn has come."""
        waiting = self._open
        out = self._out
        while waiting and waiting[0].finished:
            exchange = waiting.popleft()
            if exchange.reserved:
                self.memory.requests.release(exchange.reserved)
                exchange.reserved = 0
            parts = exchange.parts
            if parts is not None and not self.closed:
                for part in parts:
                    self.unsent += part.size if isinstance(part, FileSlice) else len(part)
                out.extend(parts)
        if self.unsent >= BACKLOG_HIGH:
            self.backlogged = True
        if not self._in_round and not self.closed and (out or not waiting):
            self._in_round = True
            self.round.add(self)

    @property
    def open_exchanges(self) -> int:
        return len(self._open)

    def flush(self) -> None:
        """Called once a round: send what is queued, then take up the peer's held requests."""
        self._in_round = False
        if self.closed:
            return
        if self._out:
            parts = self._out
            self._out = []
            self.send(parts)
        self.resume_if_ready()

    def resume_if_ready(self) -> None:
        """Handle the peer's further requests, if nothing stands in the way any more."""
        if self.closed or not (self.muted or self.backlogged):
            return
        if self.backlogged:
            if self.unsent > BACKLOG_LOW or (self.unsent > 0 and self.memory.answers.tight):
                return
            self.backlogged = False
        if self.muted:
            if self._open or self.throttled:
                return
            self.muted = False
        self.resume()

    def forget(self) -> None:
        """The channel is closed: drop what is queued and give back the memory of its requests."""
        self.unsent = 0
        self._out = []
        released = self.reserved
        self.reserved = 0
        for exchange in self._open:
            released += exchange.reserved
            exchange.reserved = 0
        if released:
            self.memory.requests.release(released)

    def send(self, parts: list[Part]) -> None:
        """Send, now or as the peer reads; what has left is taken off `unsent`."""
        raise NotImplementedError

    def resume(self) -> None:
        """Handle frames that arrived while muted, and read again."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        raise NotImplementedError
