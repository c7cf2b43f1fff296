"""The one place that maps an api key and version to a handler, and any failure to what the protocol says.

Two kinds of handler:

    Returning     `handle(request, exchange) -> response`   answered at once, or, where it returns a coroutine or a
                                                            generator (`time_slicing`), when that is done; the
                                                            connection is muted meanwhile
    Responding    `handle(request, exchange) -> None`       answers the exchange itself, later (produce, fetch, groups)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import ProtocolError, UnsupportedVersionError
from braidlog.core.tasks import Tasks
from braidlog.core.time_slice import SlicedWork
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, MakeErrorResponse, RequestQuotas, RequestTimes
from braidlog.wire.apis import API_VERSIONS, APIS, PRODUCE
from braidlog.wire.errors import MalformedError, TooManyElementsError
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.headers import RequestHeader
from braidlog.wire.headers import read_request_header
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader

log = logging.getLogger("braidlog.dispatch")

# Elements in all arrays of one request: more than any client needs, and more than a second of work.
MOST_ELEMENTS: Final = 1_000_000
# A request of more elements, or of more bytes where records are not most of it, is decoded in a thread.
FEW_ELEMENTS: Final = 5_000
LONG_REQUEST: Final = 1 << 16

RETURNS: Final = 0
RESPONDS: Final = 1

Req = TypeVar("Req", bound=Message, contravariant=True)


class ReturningHandler(Protocol[Req]):
    """Answers with what `handle` returns, or what that coroutine or generator returns."""

    def handle(self, request: Req, exchange: Exchange) -> Message | Coroutine[Any, Any, Message] | SlicedWork: ...

    def error_response(self, request: Req, version: int, error: ProtocolError) -> Message | None:
        """The response to a request that failed as a whole; None where the api has none."""


class RespondingHandler(Protocol[Req]):
    """Answers the exchange, now or later."""

    def handle(self, request: Req, exchange: Exchange) -> None: ...

    def error_response(self, request: Req, version: int, error: ProtocolError) -> Message | None: ...


class Route:
    """How one api is served: the versions offered, and its handler, which is made for the first request."""

    __slots__ = (
        "_make",
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

    def __init__(self, api_key: int, kind: int, make: Callable[[], Any]) -> None:
        """Use `returning` or `responding`, which check the type of handler."""
        api = APIS[api_key]
        self.api_key = int(api_key)
        self.name = api.name
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.flexible_from = api.flexible_from
        self.kind = kind
        self._make = make
        # All three are set by the first request.
        self.decode: Callable[[Reader, int], Message] | None = None
        self.handle: Callable[[Any, Exchange], Any] | None = None
        self.error_response: MakeErrorResponse | None = None
        # Counted here, read by the metrics page.
        self.requests = 0
        self.times: RequestTimes | None = None

    def load(self) -> Callable[[Reader, int], Message]:
        """Import what the api needs, and make its handler."""
        handler = self._make()
        self.handle = handler.handle
        self.error_response = handler.error_response
        decode: Callable[[Reader, int], Message] = APIS[self.api_key].request.decode
        self.decode = decode
        return decode


def returning(api_key: ApiKey, make: Callable[[], ReturningHandler[Any]]) -> Route:
    return Route(api_key, RETURNS, make)


def responding(api_key: ApiKey, make: Callable[[], RespondingHandler[Any]]) -> Route:
    return Route(api_key, RESPONDS, make)


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
        # Set while there are quotas of clients.
        self.quotas: RequestQuotas | None = None
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
            reader = Reader(buffer, start, end)
            header = read_request_header(reader)
            route = self._routes.get(header.request_api_key)
            version = header.request_api_version
            if route is None or version < route.min_version or version > route.max_version:
                self._unsupported(channel, route, header)
                return
            decode = route.decode
            if decode is None:
                decode = route.load()
            exchange = Exchange(
                channel,
                route.api_key,
                version,
                header.correlation_id,
                header.client_id,
                self._clock.monotonic(),
                route.times,
                self.quotas,
                end - start,
            )
            request = self._decoded(route, decode, reader, version)
            if request is None:
                channel.begin(exchange)
                channel.mute()
                _BackgroundDecoding(self, route, reader, decode, exchange).begin()
                return
            if route.api_key != PRODUCE and channel.open_exchanges and self.commit is not None:
                # A peer's requests take effect in their order: what it produced before must be there for what it asks
                # now.
                self.commit()
            channel.begin(exchange)
            self.serve(route, request, exchange)
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
        exchange.request = request
        exchange.error_response = route.error_response
        assert route.handle is not None
        try:
            response = route.handle(request, exchange)
            if route.kind == RETURNS:
                self._answer(route, exchange, response)
        except Exception as problem:
            self._refuse(route, exchange, problem)
        if not exchange.finished:
            exchange.handled = self._clock.monotonic()

    def _answer(self, route: Route, exchange: Exchange, response: object) -> None:
        if isinstance(response, Message):
            exchange.answer(response)
        elif isinstance(response, Generator):
            assert self.time_slicer is not None
            self.time_slicer.run(
                response,
                exchange.channel,
                exchange.answer,
                lambda problem: self._refuse(route, exchange, problem),
            )
        else:
            assert isinstance(response, Coroutine)
            exchange.channel.mute()
            task = self._tasks.spawn(route.name, self._answer_later(route, exchange, response))
            # A task that is cancelled before it began awaits nothing.
            work: Coroutine[Any, Any, Message] = response
            task.add_done_callback(lambda _: work.close())

    async def _answer_later(self, route: Route, exchange: Exchange, work: Coroutine[Any, Any, Message]) -> None:
        try:
            exchange.answer(await work)
        except Exception as problem:
            self._refuse(route, exchange, problem)

    def count_error(self, api: str, code: int) -> None:
        key = (api, code)
        self.errors[key] = self.errors.get(key, 0) + 1

    def _refuse(self, route: Route, exchange: Exchange, problem: Exception) -> None:
        error = to_protocol_error(problem, f"{route.name} v{exchange.version}")
        self.count_error(route.name, error.code)
        exchange.fail(error)

    def _unsupported(self, channel: Channel, route: Route | None, header: RequestHeader) -> None:
        version = header.request_api_version
        if header.request_api_key == API_VERSIONS and route is not None:
            # A version from the future is answered in version 0 with those that there are (KIP-511).
            log_message = "ApiVersions v%d of %s is not offered: answered in v0 with the versions that are"
            log.debug(log_message, version, channel.peer_host)
            if route.decode is None:
                route.load()
            exchange = Exchange(channel, API_VERSIONS, 0, header.correlation_id, None, self._clock.monotonic())
            exchange.error_response = route.error_response
            channel.begin(exchange)
            exchange.fail(UnsupportedVersionError())
            return
        self.malformed += 1
        name = APIS[header.request_api_key].name
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
