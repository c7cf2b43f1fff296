"""A peer's line to the broker: requests in order in, replies in the same order out, muted while one needs time.

What the transport is (a socket, TLS over a socket, a simulated wire) is the subclass's matter.
"""

from __future__ import annotations

from collections import deque

from mypy_extensions import mypyc_attr

from braidlog.net.exchange import Exchange, Part
from braidlog.net.round import Round


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

    def __init__(self, handler: FrameHandler, round_: Round, listener: str, peer_host: str) -> None:
        self.handler = handler
        self.round = round_
        self.listener = listener
        self.peer_host = peer_host
        # Learnt from ApiVersions v3+: what software the peer says it is; shown to operators.
        self.client_software = "unknown"
        self.client_software_version = "unknown"
        self.principal = "ANONYMOUS"
        self.closed = False
        # While muted, no further frame of this peer is handled.
        self.muted = False
        self._open: deque[Exchange] = deque()
        self._out: list[Part] = []
        self._in_round = False

    def begin(self, exchange: Exchange) -> None:
        """Take the exchange's place in the order of replies."""
        self._open.append(exchange)
        if len(self._open) >= self.MAX_OPEN:
            self.muted = True

    def mute(self) -> None:
        """The request in progress needs time (a waiting fetch, a topic creation): hold the peer's next ones."""
        self.muted = True

    def on_finished(self) -> None:
        """Some exchange finished: queue every reply whose turn has come."""
        waiting = self._open
        out = self._out
        while waiting and waiting[0].finished:
            parts = waiting.popleft().parts
            if parts is not None:
                out.extend(parts)
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
        if self.muted and not self._open and not self.closed and self.can_resume():
            self.muted = False
            self.resume()

    def send(self, parts: list[Part]) -> None:
        raise NotImplementedError

    def can_resume(self) -> bool:
        """Whether the peer takes what it was sent; a peer that does not read is not read from either."""
        return True

    def resume(self) -> None:
        """Handle frames that arrived while muted, and read again."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        raise NotImplementedError
