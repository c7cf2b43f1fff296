"""A broker's way into the coordination store over time: one session after the other, listeners told in order.

    session lost  -> every listener's `session_lost`, at once and in order: they drop what the session stood for
    then          -> a new session, tried until it opens
    session open  -> every listener's `session_opened`, one after the other: registration before election, and so on

Nothing is told out of turn: a session that is lost while listeners still hear that it opened is `session_lost` to all
of them before the next one is opened. The first session is its starter's own affair: no listener hears of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from braidlog.cluster.store import (
    ANY_VERSION,
    CoordinationStore,
    Node,
    Operation,
    Outcome,
    SessionExpiredError,
    SessionLease,
    Stat,
    StoreConnectionError,
    Watch,
)
from braidlog.core.errors import BraidlogError
from braidlog.core.tasks import Tasks

_FIRST_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 5.0

_log = logging.getLogger("braidlog.cluster.store")


class SessionListener(Protocol):
    def session_lost(self) -> None:
        """The session is over. What was done by virtue of it ends here and now; this must not fail or wait."""
        ...

    async def session_opened(self, session: CoordinationStore) -> None:
        """A new session is there. It may be lost before this returns: calls then raise SessionExpiredError."""
        ...


class StoreClient:
    """`connect` opens one session and raises where it cannot (`EmbeddedStore.open_session` does)."""

    def __init__(self, connect: Callable[[], Awaitable[CoordinationStore]]) -> None:
        self._connect = connect
        self._tasks = Tasks("store client")
        self._listeners: list[SessionListener] = []
        self._session: CoordinationStore | None = None
        self._closed = False
        self._reopening: asyncio.Task[None] | None = None

    @property
    def session(self) -> CoordinationStore:
        """The newest session; between a loss and the next opening it is the lost one, whose calls all fail."""
        if self._session is None:
            raise RuntimeError("the store client has not been started")
        return self._session

    def add_listener(self, listener: SessionListener, *, first: bool = False) -> None:
        """Listeners are told in the order in which they were added, but for one that is told `first`."""
        self._listeners.insert(0 if first else len(self._listeners), listener)

    async def start(self) -> CoordinationStore:
        """The first session; raises what `connect` raises."""
        session = await self._connect()
        self._follow(session)
        return session

    async def close(self) -> None:
        """End the session; no listener hears of it."""
        self._closed = True
        await self._tasks.close()
        if self._session is not None:
            with suppress(SessionExpiredError, StoreConnectionError):
                await self._session.close()

    def _follow(self, session: CoordinationStore) -> None:
        self._session = session
        session.on_expiry(self._on_expiry)

    def _on_expiry(self) -> None:
        if self._closed:
            return
        for listener in self._listeners:
            try:
                listener.session_lost()
            except Exception:
                _log.exception("a listener failed when the session with the coordination store was lost")
        if self._reopening is None or self._reopening.done():
            self._reopening = self._tasks.spawn("opening the next session", self._reopen())

    async def _reopen(self) -> None:
        while self.session.expired:
            self._follow(await self._connect_until_open())
            for listener in self._listeners:
                await self._tell_opened(listener, self.session)

    async def _connect_until_open(self) -> CoordinationStore:
        for wait_s in _waits():
            try:
                return await self._connect()
            except BraidlogError as problem:
                _log.warning("no new session with the coordination store yet, it is tried again: %s", problem)
            await asyncio.sleep(wait_s)
        raise AssertionError("the waits have no end")

    async def _tell_opened(self, listener: SessionListener, session: CoordinationStore) -> None:
        """Again and again while the store cannot be reached, as long as the session lives."""
        for wait_s in _waits():
            if session.expired:
                return
            try:
                await listener.session_opened(session)
                return
            except SessionExpiredError:
                return
            except StoreConnectionError as problem:
                _log.warning("the new session with the coordination store stalls, it is tried again: %s", problem)
            except Exception:
                _log.exception("a listener failed on a new session with the coordination store")
                return
            await asyncio.sleep(wait_s)


def _waits() -> Iterator[float]:
    wait_s = _FIRST_RETRY_S
    while True:
        yield wait_s
        wait_s = min(wait_s * 2, _LONGEST_RETRY_S)


class CurrentSession:
    """The newest session of a client as a store of its own, for those who need not know when sessions change.

    A watch ends with the session in which it was set: whoever sets one listens to the client as well.
    """

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    @property
    def _session(self) -> CoordinationStore:
        return self._client.session

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def expired(self) -> bool:
        return self._session.expired

    @property
    def lease(self) -> SessionLease:
        return self._session.lease

    @property
    def session_timeout_s(self) -> float:
        return self._session.session_timeout_s

    @property
    def max_request_bytes(self) -> int:
        return self._session.max_request_bytes

    def on_expiry(self, callback: Callable[[], None]) -> None:
        self._session.on_expiry(callback)

    async def sync(self) -> None:
        await self._session.sync()

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return await self._session.get(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._session.get_many(paths)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._session.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._session.children(path, watch)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return await self._session.create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._session.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._session.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        return await self._session.multi(operations)

    async def close(self) -> None:
        await self._client.close()
