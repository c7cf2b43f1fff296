"""One request and the place of its reply in its connection's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.core.slices import FileSlice

if TYPE_CHECKING:
    from braidlog.net.channel import Channel

# What a reply is made of, in order: bytes as they are, and file ranges that the kernel moves.
Part = bytes | memoryview | FileSlice


class Exchange:
    """A request being answered.

    It is finished exactly once, by `reply` or (acks=0) `finish_silently`; its connection sends finished replies in the
    order in which the requests came.
    """

    __slots__ = ("api_key", "channel", "client_id", "correlation_id", "finished", "parts", "started", "version")

    def __init__(
        self,
        channel: Channel,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        started: float,
    ) -> None:
        self.channel = channel
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started = started
        self.parts: list[Part] | None = None
        self.finished = False

    def reply(self, parts: list[Part]) -> None:
        if self.finished:
            raise RuntimeError(f"request {self.correlation_id} (api {self.api_key}) was answered twice")
        self.parts = parts
        self.finished = True
        self.channel.on_finished()

    def finish_silently(self) -> None:
        """The protocol has no reply here (Produce with acks=0)."""
        self.finished = True
        self.channel.on_finished()
