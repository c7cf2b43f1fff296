"""One request and the place of its reply in its connection's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.core.clock import Clock
from braidlog.core.slices import FileSlice
from braidlog.metrics import Histogram

if TYPE_CHECKING:
    from braidlog.net.channel import Channel

# What a reply is made of, in order: bytes as they are, and file ranges that the kernel moves.
Part = bytes | memoryview | FileSlice


class RequestTimes:
    """How long the requests of one api took, in milliseconds: in all, worked on, and waiting for something else."""

    __slots__ = ("clock", "local", "remote", "total")

    def __init__(self, clock: Clock, total: Histogram, local: Histogram, remote: Histogram) -> None:
        self.clock = clock
        self.total = total
        self.local = local
        self.remote = remote

    def finished(self, started: float, handled: float) -> None:
        """`handled` is when the handler let go of the request, 0 if it answered before that."""
        now = self.clock.monotonic()
        worked = now if handled == 0.0 else handled
        self.total.record((now - started) * 1000.0)
        self.local.record((worked - started) * 1000.0)
        self.remote.record((now - worked) * 1000.0)


class Exchange:
    """A request being answered.

    It is finished exactly once, by `reply` or (acks=0) `finish_silently`; its connection sends finished replies in the
    order in which the requests came.
    """

    __slots__ = (
        "api_key",
        "channel",
        "client_id",
        "correlation_id",
        "finished",
        "handled",
        "parts",
        "reserved",
        "started",
        "times",
        "version",
    )

    def __init__(
        self,
        channel: Channel,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        started: float,
        times: RequestTimes | None = None,
    ) -> None:
        self.channel = channel
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started = started
        self.times = times
        # When the handler returned without having answered.
        self.handled = 0.0
        # Bytes of the broker's memory for requests that this one holds until it is finished.
        self.reserved = 0
        self.parts: list[Part] | None = None
        self.finished = False

    def reply(self, parts: list[Part]) -> None:
        if self.finished:
            raise RuntimeError(f"request {self.correlation_id} (api {self.api_key}) was answered twice")
        self.parts = parts
        self.finished = True
        if self.times is not None:
            self.times.finished(self.started, self.handled)
        self.channel.on_finished()

    def finish_silently(self) -> None:
        """The protocol has no reply here (Produce with acks=0)."""
        self.finished = True
        self.channel.on_finished()
