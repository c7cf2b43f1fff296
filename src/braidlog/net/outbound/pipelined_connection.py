"""One connection to one broker: requests are written in the order posted, and answered so (hot: compiled by mypyc).

    connect → (TLS) → ApiVersions → (SASL) → any number of requests under way at a time

A request that gets no answer in time ends the connection, since answers come in order: whatever else waits on it
fails as well, and the next use makes a new one.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, UnsupportedVersionError, from_code
from braidlog.net.outbound.api_versions import NEWEST_API_VERSIONS, api_versions_request
from braidlog.net.outbound.errors import ClientError, NoConnection, RequestTimeout, reason_of
from braidlog.net.outbound.frame_reader import FrameReader, InvalidFrameSize, PeerClosed
from braidlog.net.outbound.transport import WAIT_S, PlainTransport, Transport
from braidlog.wire.apis import API_VERSIONS, APIS, decode_response, encode_request
from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.api_versions import ApiVersionsResponse
from braidlog.wire.message import Message
from braidlog.wire.writer import Piece as WriterPiece

log = logging.getLogger("braidlog.client")

Response = TypeVar("Response", bound=Message)

_ERROR_AT: Final = 4
_LAST_CORRELATION: Final = 0x7FFFFFFF


# Called on the loop's thread with the decoded response, or with the reason why there is none.
OnAnswer = Callable[[Any, ClientError | None], None]
# Called on the thread that reads in the loop's place; false when the answer needs the loop's thread.
TakeDirectly = Callable[[Any], bool]


class _Waiting:
    """A request that was written and not yet answered."""

    __slots__ = ("api_key", "correlation", "deadline", "on_answer", "take_directly", "version")

    def __init__(
        self,
        correlation: int,
        api_key: int,
        version: int,
        deadline: float,
        on_answer: OnAnswer,
        take_directly: TakeDirectly | None,
    ) -> None:
        self.correlation = correlation
        self.api_key = api_key
        self.version = version
        self.deadline = deadline
        self.on_answer = on_answer
        self.take_directly = take_directly

    def complete(self, response: Any, problem: ClientError | None) -> None:
        try:
            self.on_answer(response, problem)
        except Exception:
            # A bug of ours with one answer must not cost the connection, and the others' answers with it.
            log.exception("an answer to %s could not be taken", APIS[self.api_key].name)


class PipelinedConnection:
    def __init__(self, loop: asyncio.AbstractEventLoop, transport: Transport, address: str, client_id: str) -> None:
        self.address = address
        self.is_open = True
        # Why it ended; none while it is open or when we closed it ourselves.
        self.problem: ClientError | None = None
        # Finalised features of the cluster (KIP-584), by name.
        self.features: dict[str, int] = {}
        self.last_used = loop.time()
        self._loop = loop
        self._transport = transport
        self._client_id = client_id
        self._frames = FrameReader()
        self._correlation = 0
        self._waiting: deque[_Waiting] = deque()
        self._offered: dict[int, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Requests held back, with who waits for them: the broker asked for a pause (KIP-219), or is being authenticated
        # to again (KIP-368); written when that is over.
        self._held: list[tuple[list[WriterPiece], _Waiting | None]] = []
        self._muted_until = 0.0
        self._is_holding = False
        # Other threads read in the loop's place; one of them does so right now.
        self._is_read_directly = False
        self._has_reader = False
        self._at_end: list[Callable[[], None]] = []
        # What else it may mean when the broker hangs up instead of answering the first request.
        self.hint = ""
        self.on_closed: Callable[[PipelinedConnection], None] | None = None
        transport.start(self._on_readable, self._on_lost)

    def __repr__(self) -> str:
        return f"<Connection {self.address}{'' if self.is_open else ', closed'}>"

    @property
    def peer(self) -> str:
        """The address that the name stood for."""
        return self._transport.peer

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._transport.unsent if self.is_open else 0

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    # Versions

    def offers(self, api_key: int) -> bool:
        return api_key in self._offered

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak."""
        api = APIS[api_key]
        offered = self._offered.get(api_key)
        if offered is None:
            raise UnsupportedVersionError(f"the broker at {self.address} does not offer {api.name}")
        low, high = max(api.min_version, offered[0]), min(api.max_version, offered[1])
        if at_most is not None:
            high = min(high, at_most)
        if low > high:
            raise UnsupportedVersionError(f"the broker at {self.address} offers no version of {api.name} that fits")
        return high

    def limit_versions(self, newest: Mapping[int, int]) -> None:
        """Speak none newer than these; an api whose oldest version is newer counts as not offered."""
        for api_key, high in newest.items():
            offered = self._offered.get(api_key)
            if offered is not None and offered[0] > high:
                del self._offered[api_key]
            elif offered is not None:
                self._offered[api_key] = offered[0], min(offered[1], high)

    async def negotiate(self, software_version: str, timeout_s: float) -> None:
        """Ask what the broker offers; an old broker answers what it does not know in version 0."""
        request = api_versions_request(software_version)
        response = await self.post(API_VERSIONS, NEWEST_API_VERSIONS, request, timeout_s)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == UnsupportedVersionError.code:
            newest = max((each.max_version for each in response.api_keys if each.api_key == API_VERSIONS), default=0)
            response = await self.post(API_VERSIONS, min(newest, NEWEST_API_VERSIONS), request, timeout_s)
            assert isinstance(response, ApiVersionsResponse)
        if response.error_code != NONE:
            raise NoConnection(
                f"the broker at {self.address} does not say what it offers ({from_code(response.error_code).name})"
            )
        self._offered = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    # Requests

    async def call(
        self,
        api_key: int,
        request: Message,
        answer: type[Response],
        *,
        at_most: int | None = None,
        timeout_s: float,
    ) -> Response:
        response = await self.post(api_key, self.version_for(api_key, at_most), request, timeout_s)
        assert isinstance(response, answer)
        return response

    def post(
        self, api_key: int, version: int, request: Message, timeout_s: float, *, ahead: bool = False
    ) -> asyncio.Future[Any]:
        """Write a request; the future has the decoded response, or says why there is none.

        `ahead` overtakes what is held back.
        """
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.post_with(api_key, version, request, timeout_s, partial(_settle, answer), ahead=ahead)
        return answer

    def post_with(
        self,
        api_key: int,
        version: int,
        request: Message,
        timeout_s: float,
        on_answer: OnAnswer,
        take_directly: TakeDirectly | None = None,
        *,
        ahead: bool = False,
        directly: bool = False,
    ) -> None:
        """As `post`, with a callback as soon as the answer is there.

        `directly`: not on the loop's thread, after `may_post_directly` said that this is possible.
        """
        if not directly:
            self.let_loop_read()
        pieces = self._encoded(api_key, version, request)
        deadline = self._loop.time() + timeout_s
        waiting = _Waiting(self._correlation, api_key, version, deadline, on_answer, take_directly)
        self._set_timer(deadline)
        if ahead:
            # Answers come in the order of writing: those held back are answered after this one.
            held = sum(each is not None for _, each in self._held)
            self._waiting.insert(len(self._waiting) - held, waiting)
            self._send(pieces)
        else:
            self._waiting.append(waiting)
            self._write(pieces, waiting)

    def post_only(self, api_key: int, version: int, request: Message) -> None:
        """For what has no answer: a produce with acks=0."""
        self._write(self._encoded(api_key, version, request), None)

    def _encoded(self, api_key: int, version: int, request: Message) -> list[WriterPiece]:
        if not self.is_open:
            raise self.problem or NoConnection(f"the connection to {self.address} was closed")
        self._correlation = self._correlation + 1 if self._correlation < _LAST_CORRELATION else 0
        try:
            return encode_request(api_key, version, self._correlation, self._client_id, request).parts()
        except EncodeError as problem:
            raise UnsupportedVersionError(
                f"the broker at {self.address} has an older {APIS[api_key].name}, which cannot say this: {problem}"
            ) from problem
        except UnicodeEncodeError as problem:
            raise UserError(f"{problem.object!a} is not UTF-8 text, which names have to be") from problem

    def _write(self, pieces: list[WriterPiece], waiting: _Waiting | None) -> None:
        self.last_used = self._loop.time()
        if self._held or self._is_holding or self.last_used < self._muted_until:
            self._held.append((pieces, waiting))
            return
        self._send(pieces)

    def _send(self, pieces: list[WriterPiece]) -> None:
        # File slices are the broker's; a client has bytes only.
        self._transport.send([piece for piece in pieces if isinstance(piece, (bytes, memoryview))])

    def _mute(self, seconds: float) -> None:
        self._muted_until = max(self._muted_until, self._loop.time() + seconds)
        self._loop.call_at(self._muted_until, self._unmute)

    def _unmute(self) -> None:
        if self.is_open and not self._is_holding and self._loop.time() >= self._muted_until:
            held, self._held = self._held, []
            for pieces, waiting in held:
                self._write(pieces, waiting)

    def hold(self) -> None:
        """Hold back what is posted from now on, until `release`."""
        self._is_holding = True

    def release(self) -> None:
        self._is_holding = False
        self._unmute()

    # Answers

    def _on_readable(self) -> None:
        try:
            for frame in self._frames.frames(self._transport):
                self._on_frame(frame)
                if not self.is_open:
                    return
        except Exception as problem:
            self._on_unreadable(problem)

    def _on_unreadable(self, problem: Exception) -> None:
        if isinstance(problem, PeerClosed):
            self._end(NoConnection(f"the broker at {self.address} closed the connection{self.hint}"))
        elif isinstance(problem, InvalidFrameSize):
            self._end(
                NoConnection(
                    f"{self.address} does not speak the Kafka protocol in clear text; "
                    "is it the port of another service, or a TLS listener (security.protocol=SSL)?"
                )
            )
        elif isinstance(problem, ClientError):
            self._end(problem)
        elif isinstance(problem, OSError):
            self._on_lost(problem)
        else:
            # A bug of ours must not leave those without an answer who wait for one.
            log.error("an answer of %s could not be taken", self.address, exc_info=problem)
            self._end(NoConnection(f"an answer of {self.address} could not be taken ({type(problem).__name__})"))

    def _on_frame(self, frame: bytes) -> None:
        waiting = self._waiting.popleft() if self._waiting else None
        if waiting is None or len(frame) < _ERROR_AT + 2 or _correlation_of(frame) != waiting.correlation:
            if waiting is not None:
                self._waiting.appendleft(waiting)
            self._end(NoConnection(f"{self.address} answered out of order; is it a Kafka-compatible broker?"))
            return
        version = waiting.version
        # A broker that does not know this version of ApiVersions answers in version 0.
        if waiting.api_key == API_VERSIONS and _error_of(frame) == UnsupportedVersionError.code:
            version = 0
        try:
            response = decode_response(waiting.api_key, version, frame)[1]
        except BaseException as problem:
            self._waiting.appendleft(waiting)
            if not isinstance(problem, MalformedError):
                raise
            self._end(
                NoConnection(
                    f"{self.address} answered {APIS[waiting.api_key].name} with something else ({problem}); "
                    "is it a Kafka-compatible broker?"
                )
            )
            return
        self.hint = ""
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self._mute(throttle_ms / 1000.0)
        waiting.complete(response, None)

    # In another thread's hands, while the loop's thread is held (`Engine.busy`)

    def may_post_directly(self, timeout_s: float) -> bool:
        """Whether a request can be written now without anything that only the loop's thread may do."""
        timer = self._timer
        # The loop's own clock, without a call through the loop.
        now = time.monotonic()
        return (
            self.is_open
            and self._transport.is_direct
            and not self._waiting
            and not self._held
            and not self._is_holding
            and now >= self._muted_until
            and self._transport.unsent == 0
            # What is set already comes soon enough.
            and timer is not None
            and timer.when() <= now + timeout_s
        )

    def take_reading(self) -> bool:
        """From now until `leave_reading` the caller's thread reads, and no other; false when that cannot be.

        There has to be one request under way, whose answer another thread may take.
        """
        transport = self._transport
        if not self.is_open or self._has_reader or not isinstance(transport, PlainTransport):
            return False
        if len(self._waiting) != 1 or self._waiting[0].take_directly is None:
            return False
        if not self._is_read_directly:
            self._is_read_directly = True
            transport.pause_reader()
        self._has_reader = True
        return True

    def leave_reading(self, keep: bool) -> None:
        """The caller's thread reads no more. `keep`: a thread will again, so the loop need not look meanwhile."""
        self._has_reader = False
        if not keep or self._waiting:
            self.let_loop_read()

    def let_loop_read(self) -> None:
        """Unless a thread is reading: it takes all answers."""
        if self._is_read_directly and not self._has_reader:
            self._is_read_directly = False
            if self.is_open and isinstance(self._transport, PlainTransport):
                self._transport.resume_reader()
                if self._frames.has_unread:
                    # The socket has no event for what was read already.
                    self._loop.call_soon_threadsafe(self._on_readable)

    def wait_readable(self, timeout_s: float) -> None:
        """As the one who reads, without holding the loop's thread; about so long."""
        transport = self._transport
        assert isinstance(transport, PlainTransport)
        if timeout_s < WAIT_S or not self._frames.wait(transport):
            transport.wait_readable(timeout_s)

    def read_directly(self) -> bool:
        """Take the answers that have come; false when the rest is for the loop's thread."""
        if not self.is_open:
            return False
        rest: list[bytes] = []
        problem: Exception | None = None
        try:
            only = self._frames.only_frame(self._transport)
            if only is not None:
                if len(only) == 0 or self._take_directly(only):
                    return True
                rest.append(only)
            for frame in self._frames.frames(self._transport):
                if rest or not self._take_directly(frame):
                    rest.append(frame)
        except Exception as met:
            problem = met
        if rest or problem is not None:
            self._loop.call_soon_threadsafe(self._take_over, rest, problem)
            return False
        return True

    def _take_directly(self, frame: bytes) -> bool:
        """Whether the frame was the expected answer, and one without consequences for the loop."""
        waiting = self._waiting[0] if self._waiting else None
        if waiting is None or waiting.take_directly is None:
            return False
        if len(frame) < _ERROR_AT + 2 or _correlation_of(frame) != waiting.correlation:
            return False
        try:
            response = decode_response(waiting.api_key, waiting.version, frame)[1]
        except MalformedError:
            return False
        if getattr(response, "throttle_time_ms", 0) > 0 or not waiting.take_directly(response):
            return False
        self._waiting.popleft()
        return True

    def _take_over(self, frames: list[bytes], problem: Exception | None) -> None:
        """On the loop's thread: what another thread read and could not deal with."""
        try:
            for frame in frames:
                if self.is_open:
                    self._on_frame(frame)
        except Exception as met:
            problem = met
        if problem is not None and self.is_open:
            self._on_unreadable(problem)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._waiting or not self.is_open:
            return
        first = min(self._waiting, key=lambda each: each.deadline)
        if first.deadline > self._loop.time():
            self._set_timer(first.deadline)
            return
        if first.api_key == API_VERSIONS:
            # The first request of a connection, which changes nothing.
            explanation = "takes connections but does not answer (request.timeout.ms); is it overloaded, or stopped?"
        else:
            explanation = (
                f"did not answer {APIS[first.api_key].name} in time (request.timeout.ms); whether it acted on it is "
                "not known"
            )
        self._end(RequestTimeout(f"the broker at {self.address} {explanation}"))

    # End

    def _on_lost(self, problem: OSError) -> None:
        self._end(NoConnection(f"the connection to {self.address} broke ({reason_of(problem)})"))

    def close(self) -> None:
        self._end(None)

    def fail(self, problem: ClientError) -> None:
        """End it for a reason of ours; requests under way fail with it."""
        self._end(problem)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call when the connection ends, for whatever reason."""
        self._at_end.append(callback)

    def _end(self, problem: ClientError | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.problem = problem
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        waiting, self._waiting = self._waiting, deque()
        self._held.clear()
        for callback in self._at_end:
            callback()
        if self.on_closed is not None:
            self.on_closed(self)
        for each in waiting:
            each.complete(None, problem or NoConnection(f"the connection to {self.address} was closed"))


def _settle(answer: asyncio.Future[Any], response: Any, problem: ClientError | None) -> None:
    if answer.done():
        return
    if problem is None:
        answer.set_result(response)
    else:
        answer.set_exception(problem)


def _correlation_of(frame: bytes) -> int:
    # Ours are never negative; faster than to call another module for it.
    return (frame[0] << 24) | (frame[1] << 16) | (frame[2] << 8) | frame[3]


def _error_of(frame: bytes) -> int:
    return int(struct.unpack_from(">h", frame, _ERROR_AT)[0])
