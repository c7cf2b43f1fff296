"""One request and the place of its reply in its connection's order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.slices import FileSlice
from braidlog.metrics import Histogram
from braidlog.wire.apis import APIS, encode_response
from braidlog.wire.message import Message

if TYPE_CHECKING:
    from braidlog.net.channel import Channel

log = logging.getLogger("braidlog.broker")

# Builds the response to a request that failed as a whole; None where its api has no such response.
MakeErrorResponse = Callable[[Any, int, ProtocolError], Message | None]

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


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestQuotas:
    """Counts what requests took of their clients' quotas, and throttles who is over one; the broker has one where any
    quota is set."""

    def charge(self, exchange: Exchange, response: Message) -> None:
        """The request is about to be answered: count it, and tell the client in the response how long it is held."""
        raise NotImplementedError

    def charge_unanswered(self, exchange: Exchange) -> None:
        """The request is done and has no response."""
        raise NotImplementedError

    def charge_fetch(self, exchange: Exchange, size: int) -> int:
        """A consumer's fetch found so many bytes: how many milliseconds it is throttled for, and then gets none."""
        raise NotImplementedError

    def charge_exempt(self, exchange: Exchange) -> None:
        """The request serves the cluster itself: its time is counted, but held against nobody."""
        raise NotImplementedError

    def most_fetch_bytes(self, exchange: Exchange) -> int:
        """A fetch of more would be throttled for certain."""
        raise NotImplementedError


class Exchange:
    """A request being answered; the responder that handlers and coordinators answer.

    It is finished exactly once, by `answer`, `fail` or (acks=0) `finish_silently`; its connection sends finished
    replies in the order in which the requests came.
    """

    __slots__ = (
        "api_key",
        "channel",
        "charged",
        "client_id",
        "correlation_id",
        "error_response",
        "finished",
        "handled",
        "parts",
        "quotas",
        "request",
        "reserved",
        "size",
        "started",
        "throttle_ms",
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
        quotas: RequestQuotas | None = None,
        size: int = 0,
    ) -> None:
        """`size` is that of the request's frame."""
        self.channel = channel
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started = started
        self.times = times
        self.quotas = quotas
        self.size = size
        # Whether it was counted against its client's quotas before it was answered.
        self.charged = False
        # What its handler found that the client has to wait, by a quota of its own (topic changes).
        self.throttle_ms = 0
        # For `fail`; set by the dispatch that hands the request to its handler.
        self.request: Message | None = None
        self.error_response: MakeErrorResponse | None = None
        # When the handler returned without having answered.
        self.handled = 0.0
        # Bytes of the broker's memory for requests that this one holds until it is finished.
        self.reserved = 0
        self.parts: list[Part] | None = None
        self.finished = False

    def answer(self, response: Message) -> None:
        if self.finished:
            raise RuntimeError(f"request {self.correlation_id} (api {self.api_key}) was answered twice")
        if self.quotas is not None:
            self.quotas.charge(self, response)
        self.parts = encode_response(self.api_key, self.version, self.correlation_id, response).parts()
        self.finished = True
        self.request = None
        if self.times is not None:
            self.times.finished(self.started, self.handled)
        self.channel.on_finished()

    def fail(self, error: ProtocolError) -> None:
        """The request failed as a whole; where its api cannot say so, the connection is closed."""
        name = APIS[self.api_key].name
        if log.isEnabledFor(logging.DEBUG):
            message = "refused %s v%d of client %s at %s: %s"
            log.debug(message, name, self.version, self.client_id, self.channel.peer_host, error)
        response = None
        if self.error_response is not None:
            response = self.error_response(self.request, self.version, error)
        if response is None:
            self.finish_silently()
            self.channel.close(f"{name} v{self.version} failed with {error.name}, which has no response")
        else:
            self.answer(response)

    def finish_silently(self) -> None:
        """The protocol has no reply here (Produce with acks=0)."""
        if self.quotas is not None:
            self.quotas.charge_unanswered(self)
        self.finished = True
        self.channel.on_finished()
