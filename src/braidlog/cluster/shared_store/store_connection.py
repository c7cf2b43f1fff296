"""Keeps a session connected to the process that serves the store: connects again whenever the socket breaks.

    HELLO with the session's id -> WELCOME: what it watched counts as changed, then requests go out
                                -> EXPIRED: the session is over

`SharedStore` opens such sessions one after the other, for a `StoreClient`. All of it is on the loop, without threads.
What was watched over a lost connection may have changed unseen, so each of these watches fires; whoever hears it reads
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from braidlog.cluster.shared_store import frames
from braidlog.cluster.shared_store.frames import BadFrameError, Frames, Hello
from braidlog.cluster.shared_store.socket_path import reachable_path
from braidlog.cluster.store import EventKind, WatchEvent
from braidlog.cluster.zookeeper.session import SessionSettings, ZooKeeperSession
from braidlog.cluster.zookeeper.session_connection import (
    ConnectionListener,
    ConnectionLostError,
    Exists,
    GetChildren,
    GetData,
    OnAnswer,
    Request,
)
from braidlog.cluster.zookeeper.session_metrics import SessionMetrics
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import BraidlogError
from braidlog.core.tasks import Tasks
from braidlog.metrics import MetricsRegistry

_FIRST_WAIT_S: Final = 0.02
_LONGEST_WAIT_S: Final = 0.5
# A store that listens greets at once, once it has opened its files.
_WELCOME_TIMEOUT_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 5.0

_log = logging.getLogger("braidlog.cluster.store")


class StoreConnection:
    """A `SessionConnection`. `owner` is this process, which has no other session."""

    def __init__(
        self, path: str, owner: str, timeout_ms: int, listener: ConnectionListener, now: Callable[[], float]
    ) -> None:
        self._path = path
        self._owner = owner
        self._timeout_ms = timeout_ms
        self._listener = listener
        self._now = now
        self._tasks = Tasks("store connection")
        self._session_id = 0
        self._generation = 0
        self._link: _Link | None = None
        self._over = False
        self._problem = "not tried yet"
        self._last_xid = 0
        # In the order of sending.
        self._pending: dict[int, tuple[Request, OnAnswer]] = {}
        self._watched: set[str] = set()
        self._watched_children: set[str] = set()
        self._closed: asyncio.Future[None] | None = None

    @property
    def problem(self) -> str:
        return self._problem

    def start(self) -> None:
        self._tasks.spawn("connecting", self._stay_connected())

    def submit(self, generation: int, request: Request, on_answer: OnAnswer) -> bool:
        link = self._link
        if link is None or generation != self._generation or not link.is_open:
            return False
        xid = self._next_xid()
        self._pending[xid] = (request, on_answer)
        link.send(frames.encode_request(xid, request))
        return True

    def drop(self) -> None:
        if self._link is not None:
            self._link.abort()

    async def stop(self) -> None:
        link = self._link
        if link is not None and link.is_open and not self._over:
            self._over = True
            self._closed = asyncio.get_running_loop().create_future()
            link.send(frames.encode_close(self._next_xid()))
            await asyncio.wait((self._closed,), timeout=_CLOSE_TIMEOUT_S)
        self._over = True
        if link is not None:
            link.abort()
        await self._tasks.close()

    def _next_xid(self) -> int:
        self._last_xid = (self._last_xid + 1) & 0xFFFFFFFF
        return self._last_xid

    async def _stay_connected(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._over:
            link = _Link(self._received, self._now())
            try:
                with reachable_path(self._path) as path:
                    await asyncio.get_running_loop().create_unix_connection(link.itself, path)
            except OSError as problem:
                self._problem = f"{problem.strerror or problem}"
            else:
                link.send(frames.encode_hello(Hello(self._session_id, self._timeout_ms, self._owner)))
                timer = asyncio.get_running_loop().call_later(_WELCOME_TIMEOUT_S, self._end_unless_welcome, link)
                try:
                    await link.lost.wait()
                finally:
                    timer.cancel()
                    link.abort()
                if link.welcome:
                    wait_s = _FIRST_WAIT_S
                self._disconnected(link)
            if not self._over:
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _end_unless_welcome(self, link: _Link) -> None:
        if not link.welcome:
            self._problem = f"it has not answered within {_WELCOME_TIMEOUT_S:g} s"
            link.abort()

    def _disconnected(self, link: _Link) -> None:
        if not link.welcome:
            return
        self._link = None
        pending, self._pending = self._pending, {}
        for _, on_answer in pending.values():
            on_answer(None, ConnectionLostError("the connection to the store was lost"))
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self._listener.on_disconnected()

    def _received(self, link: _Link, frame: bytes) -> None:
        """Raises BadFrameError."""
        kind = frames.kind_of(frame)
        if kind in (frames.ANSWER, frames.ERROR):
            self._answered(*frames.decode_answer(frame))
        elif kind == frames.EVENT:
            event = frames.decode_event(frame)
            if event.kind != EventKind.CHILDREN_CHANGED:
                self._watched.discard(event.path)
            if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
                self._watched_children.discard(event.path)
            self._listener.on_watch(event)
        elif kind == frames.WELCOME and not link.welcome:
            self._welcomed(link, *frames.decode_welcome(frame))
        elif kind == frames.EXPIRED:
            self._over = True
            self._listener.on_session_expired()
            link.abort()
        elif kind == frames.REFUSED:
            self._problem = frames.decode_refused(frame)
            link.abort()
        else:
            raise BadFrameError(f"a frame of the unknown kind {kind}")

    def _welcomed(self, link: _Link, session_id: int, timeout_ms: int) -> None:
        link.welcome = True
        self._link = link
        self._session_id = session_id
        self._generation += 1
        watched, self._watched = self._watched, set()
        watched_children, self._watched_children = self._watched_children, set()
        for path in sorted(watched):
            self._listener.on_watch(WatchEvent(EventKind.DATA_CHANGED, path))
        for path in sorted(watched_children):
            self._listener.on_watch(WatchEvent(EventKind.CHILDREN_CHANGED, path))
        self._listener.on_connected(self._generation, session_id, timeout_ms / 1000, link.asked_at)

    def _answered(self, xid: int, value: object, problem: BraidlogError | None) -> None:
        found = self._pending.pop(xid, None)
        if found is None:
            # Of CLOSE, the last request that there is.
            if self._closed is not None and not self._closed.done():
                self._closed.set_result(None)
            return
        request, on_answer = found
        if problem is None and isinstance(request, GetData | Exists) and request.watch:
            self._watched.add(request.path)
        if problem is None and isinstance(request, GetChildren) and request.watch:
            self._watched_children.add(request.path)
        on_answer(value, problem)


class _Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, received: Callable[[_Link, bytes], None], asked_at: float) -> None:
        self._received = received
        self._frames = Frames(frames.MOST_ANSWER_BYTES)
        self._transport: asyncio.Transport | None = None
        self.asked_at = asked_at
        self.welcome = False
        self.lost = asyncio.Event()

    def itself(self) -> _Link:
        """What asyncio calls a factory."""
        return self

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                if not self.is_open:
                    return
                self._received(self, frame)
        except BadFrameError as problem:
            _log.warning("the connection to the store is closed: %s", problem)
            self.abort()

    def send(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        self.lost.set()


class SharedStoreSettings(NamedTuple):
    """`owner` names this process among those that use the store: its new session ends the one that it had before."""

    path: str
    owner: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10


def shared_store_settings(settings: BrokerSettings, owner: str) -> SharedStoreSettings:
    session_timeout_ms = settings.get_int("zookeeper.session.timeout.ms")
    given = settings.get("zookeeper.connection.timeout.ms")
    return SharedStoreSettings(
        settings.get_str("braidlog.store.socket"),
        owner,
        session_timeout_ms,
        given if isinstance(given, int) else session_timeout_ms,
        settings.get_int("zookeeper.max.in.flight.requests"),
    )


class SharedStore:
    def __init__(self, settings: SharedStoreSettings, clock: Clock, metrics: MetricsRegistry) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = SessionMetrics(metrics)

    async def open_session(self) -> ZooKeeperSession:
        """A new session, connected; raises StoreUnavailableError if nobody serves the store in time."""
        settings = self._settings
        session = ZooKeeperSession(
            lambda listener: StoreConnection(
                settings.path, settings.owner, settings.session_timeout_ms, listener, self._clock.monotonic
            ),
            SessionSettings(
                settings.path,
                settings.connection_timeout_ms,
                settings.max_in_flight,
                store="the shared store",
                advice="it is served by `braidlog serve --workers`, which must be running; see its log",
            ),
            self._clock,
            self._metrics,
        )
        await session.open()
        return session
