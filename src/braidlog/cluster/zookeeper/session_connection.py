"""What carries a session: requests go out on a numbered connection, answers and events come in, in order.

kazoo is one such (`kazoo_connection`), the simulated ZooKeeper of tests another; the session on top is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from braidlog.cluster.store import Operation, WatchEvent
from braidlog.core.errors import BraidlogError


class GetData(NamedTuple):
    """Answered with a `Node`."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Answered with a `Stat`, or None."""

    path: str
    watch: bool = False


class GetChildren(NamedTuple):
    """Answered with names, in any order."""

    path: str
    watch: bool = False


class GetMany(NamedTuple):
    """Answered with a `Node` or None for each."""

    paths: Sequence[str]


class Transact(NamedTuple):
    """Answered with an `Outcome` for each."""

    operations: Sequence[Operation]


class Sync(NamedTuple):
    """Answered with None once the server knows all that its leader did."""


Request: TypeAlias = GetData | Exists | GetChildren | GetMany | Transact | Sync
# The answer, or why there is none: StoreError, SessionExpiredError or ConnectionLostError.
OnAnswer: TypeAlias = Callable[[Any, BraidlogError | None], None]


class ConnectionLostError(BraidlogError):
    """The connection went before the answer came."""


class ConnectionListener(Protocol):
    """A session; it hears everything on the loop, in order."""

    def on_connected(self, generation: int, session_id: int, timeout_s: float, sent_at: float) -> None:
        """`sent_at` is when this connection was asked for: the session was alive after that."""
        ...

    def on_disconnected(self) -> None:
        """Every request on that connection has been answered, or told that it will not be."""
        ...

    def on_session_expired(self) -> None: ...

    def on_failed(self, problem: str, authentication: bool) -> None:
        """Given up, for another reason than that the session expired or was closed."""
        ...

    def on_watch(self, event: WatchEvent) -> None: ...


class SessionConnection(Protocol):
    """Keeps a session connected until it expires, fails or is stopped. Watches outlive a lost connection."""

    @property
    def problem(self) -> str:
        """Why the last attempt to connect failed."""
        ...

    def start(self) -> None: ...

    def submit(self, generation: int, request: Request, on_answer: OnAnswer) -> bool:
        """False if the connection of this number is gone, and the request has not been sent."""
        ...

    def drop(self) -> None:
        """Cut the connection and connect again, perhaps to another server."""
        ...

    async def stop(self) -> None:
        """End the session; it is over when this returns, if a server could be told in time."""
        ...
