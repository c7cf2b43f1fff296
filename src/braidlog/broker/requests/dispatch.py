"""The one place that maps an api key and version to a handler, and any failure to what the protocol says.

Two kinds of handler:

    Call    `handle(request, exchange) -> response`   answered at once, or, where it returns a coroutine or a generator
                                                      (`time_slicing`), when that is done; the connection is muted
                                                      meanwhile
    Flow    `handle(request, exchange) -> None`       answers the exchange itself, later (produce, fetch)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from braidlog.broker.requests.error_mapping import log_error_response, to_protocol_error
from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import ProtocolError, UnsupportedVersionError
from braidlog.core.tasks import Tasks
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, RequestTimes
from braidlog.wire.apis import APIS, PRODUCE, encode_response
from braidlog.wire.errors import MalformedError, TooManyElementsError
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader

log = logging.getLogger("braidlog.dispatch")

API_VERSIONS: Final = 18
# Elements in all arrays of one request: more than any client needs, and more than a second of work.
MOST_ELEMENTS: Final = 1_000_000
# A request of more elements, or of more bytes where records are not most of it, is decoded in a thread.
FEW_ELEMENTS: Final = 5_000
LONG_REQUEST: Final = 1 << 16

CALL: Final = 0
FLOW: Final = 1

# Builds the response that tells a client that all of its request failed; None where the protocol has no such thing.
MakeErrorResponse = Callable[[Any, int, ProtocolError], Message | None]


class Route:
    """How one api is served: the versions offered, and who handles them."""

    __slots__ = (
        "api_key",
        "decode",
        "error_response",
        "flexible_from",
        "handle",
        "kind",
        "max_version",
        "min_version",
        "name",
        "requests",
        "times",
    )

    def __init__(
        self,
        api_key: int,
        kind: int,
        handle: Callable[..., Any],
        error_response: MakeErrorResponse | None,
        max_version: int | None = None,
    ) -> None:
        api = APIS[api_key]
        self.api_key = api_key
        self.name = api.name
        self.min_version = api.min_version
        self.max_version = api.max_version if max_version is None else max_version
        self.flexible_from = api.flexible_from
        self.decode: Callable[[Reader, int], Message] | None = None
        self.kind = kind
        self.handle = handle
        self.error_response = error_response
        # Counted here, read by the metrics page.
        self.requests = 0
        self.times: RequestTimes | None = None


class Dispatch(FrameHandler):
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        # Set when there is a loop to run on.
        self.time_slicer: TimeSlicer | None = None
        self.handler_pool: RequestHandlerPool | None = None
        self._routes: dict[int, Route] = {}
        self._on_channel_closed: list[Callable[[Channel], None]] = []
        self.malformed = 0
        # Writes what is staged; set where there is anything that stages.
        self.commit: Callable[[], None] | None = None
        # (api name, error code) -> how often; the metrics page reads it.
        self.errors: dict[tuple[str, int], int] = {}
        # Set while the broker stops: requests in progress finish, new ones find their connection closed.
        self.stopping = False

    @property
    def routes(self) -> dict[int, Route]:
        return self._routes

    def add(self, route: Route) -> None:
        self._routes[route.api_key] = route

    def on_channel_closed(self, callback: Callable[[Channel], None]) -> None:
        self._on_channel_closed.append(callback)

    def channel_closed(self, channel: Channel) -> None:
        for callback in self._on_channel_closed:
            callback(channel)

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        if self.stopping:
            channel.close("the broker is stopping")
            return
        try:
            self._handle(channel, Reader(buffer, start, end))
        except Exception as problem:
            self.give_up(channel, problem)

    def give_up(self, channel: Channel, problem: Exception) -> None:
        if isinstance(problem, MalformedError):
            self.malformed += 1
            log.info("closed the connection from %s: malformed request: %s", channel.peer_host, problem)
            channel.close("malformed request")
        else:
            log_message = "closed the connection from %s: a bug in braidlog, please report it"
            log.error(log_message, channel.peer_host, exc_info=problem)
            channel.close("internal error")

    def _handle(self, channel: Channel, reader: Reader) -> None:
        api_key = int(reader.int16())
        version = int(reader.int16())
        correlation_id = int(reader.int32())
        route = self._routes.get(api_key)
        if route is None or version < route.min_version or version > route.max_version:
            self._unsupported(channel, route, api_key, version, correlation_id)
            return
        # The first header of ControlledShutdown has no client id.
        client_id = None if api_key == 7 and version == 0 else reader.nullable_string(False)
        if 0 <= route.flexible_from <= version:
            reader.skip_tags()
        decode = route.decode
        if decode is None:
            decode = route.decode = APIS[api_key].request.decode
        exchange = Exchange(channel, api_key, version, correlation_id, client_id, self._clock.monotonic(), route.times)
        request = self._decoded(route, decode, reader, version)
        if request is None:
            channel.begin(exchange)
            channel.mute()
            _BackgroundDecoding(self, route, reader, decode, exchange).begin()
            return
        if api_key != PRODUCE and channel.open_exchanges and self.commit is not None:
            # A peer's requests take effect in their order: what it produced before must be there for what it asks now.
            self.commit()
        channel.begin(exchange)
        self.serve(route, request, exchange)

    def _decoded(
        self, route: Route, decode: Callable[[Reader, int], Message], reader: Reader, version: int
    ) -> Message | None:
        """The request, or none where decoding it would take long."""
        body = reader.position
        if self.handler_pool is None:
            reader.elements_left = MOST_ELEMENTS
            return decode(reader, version)
        if route.api_key != PRODUCE and reader.end - body > LONG_REQUEST:
            return None
        reader.elements_left = FEW_ELEMENTS
        try:
            return decode(reader, version)
        except TooManyElementsError:
            reader.position = body
            return None

    def serve(self, route: Route, request: Message, exchange: Exchange) -> None:
        route.requests += 1
        if route.kind == FLOW:
            route.handle(request, exchange)
        else:
            self._answer(route, request, exchange)
        if not exchange.finished:
            exchange.handled = self._clock.monotonic()

    def _answer(self, route: Route, request: Message, exchange: Exchange) -> None:
        try:
            response = route.handle(request, exchange)
        except Exception as problem:
            response = self._refusal(route, request, exchange, problem)
        if response is None or isinstance(response, Message):
            self._reply(route, exchange, response)
        elif self.time_slicer is not None and hasattr(response, "__next__"):
            self.time_slicer.run(
                response,
                exchange.channel,
                lambda message: self._reply(route, exchange, message),
                lambda problem: self._reply(route, exchange, self._refusal(route, request, exchange, problem)),
            )
        else:
            exchange.channel.mute()
            self._tasks.spawn(route.name, self._answer_later(route, request, exchange, response))

    async def _answer_later(
        self, route: Route, request: Message, exchange: Exchange, work: Coroutine[Any, Any, Message]
    ) -> None:
        try:
            response: Message | None = await work
        except Exception as problem:
            response = self._refusal(route, request, exchange, problem)
        self._reply(route, exchange, response)

    def count_error(self, api: str, code: int) -> None:
        key = (api, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def _refusal(self, route: Route, request: Message, exchange: Exchange, problem: Exception) -> Message | None:
        error = to_protocol_error(problem, f"{route.name} v{exchange.version}")
        self.count_error(route.name, error.code)
        log_error_response(exchange, error)
        if route.error_response is None:
            return None
        return route.error_response(request, exchange.version, error)

    def _reply(self, route: Route, exchange: Exchange, response: Message | None) -> None:
        if response is None:
            exchange.finish_silently()
            exchange.channel.close(f"{route.name} failed and has no way to say so")
            return
        exchange.reply(encode_response(route.api_key, exchange.version, exchange.correlation_id, response).parts())

    def _unsupported(
        self, channel: Channel, route: Route | None, api_key: int, version: int, correlation_id: int
    ) -> None:
        if api_key == API_VERSIONS and route is not None:
            # Whoever asks in a version from the future is told in version 0 which ones there are (KIP-511).
            log_message = "ApiVersions v%d of %s is not offered: answered in v0 with the versions that are"
            log.debug(log_message, version, channel.peer_host)
            exchange = Exchange(channel, api_key, 0, correlation_id, None, self._clock.monotonic())
            channel.begin(exchange)
            response = (
                route.error_response(None, 0, UnsupportedVersionError()) if route.error_response is not None else None
            )
            self._reply(route, exchange, response)
            return
        self.malformed += 1
        known = APIS.get(api_key)
        name = known.name if known is not None else f"api key {api_key}"
        offered = f"v{route.min_version}–v{route.max_version} are" if route is not None else "it is not"
        log_message = "closed the connection from %s: %s v%d is not supported (%s offered)"
        log.info(log_message, channel.peer_host, name, version, offered)
        channel.close("unsupported version")


class _BackgroundDecoding:
    """A long list of things that takes a thread to decode; its connection is muted meanwhile."""

    def __init__(
        self,
        dispatch: Dispatch,
        route: Route,
        reader: Reader,
        decode: Callable[[Reader, int], Message],
        exchange: Exchange,
    ) -> None:
        self.dispatch = dispatch
        self.route = route
        self.reader = reader
        self.decode = decode
        self.exchange = exchange
        self.request: Message | None = None

    def begin(self) -> None:
        assert self.dispatch.handler_pool is not None
        # The memory was reserved when the request was received.
        self.dispatch.handler_pool.run(0, self.run, self.done)

    def run(self) -> None:
        """In a thread."""
        self.reader.elements_left = MOST_ELEMENTS
        self.reader.pause_often()
        self.request = self.decode(self.reader, self.exchange.version)

    def done(self, problem: Exception | None) -> None:
        channel = self.exchange.channel
        if channel.closed:
            return
        try:
            if problem is not None:
                raise problem
            assert self.request is not None
            self.dispatch.serve(self.route, self.request, self.exchange)
        except Exception as failure:
            self.dispatch.give_up(channel, failure)
