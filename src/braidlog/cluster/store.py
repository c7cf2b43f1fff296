"""The coordination store that brokers agree through: a tree of small versioned nodes, as ZooKeeper has it.

A `CoordinationStore` is one session of such a store; a `StoreClient` opens the next one when a session is lost. What
every backend promises (`tests/support/store_contract.py` is the suite that each one passes):

    order       changes get zxids that only grow, also over restarts; one session's calls take effect in call order
    durability  a call that returned is on disk; nothing is readable, and no watch fires, before that
    atomicity   `multi` takes effect as a whole or raises what its first impossible operation met
    ephemerals  vanish with their session, whether it is closed, expires or its process dies
    watches     fire once; a session learns of a change by its watch before it can read that change; a watch may also
                fire without a change (the connection was lost meanwhile), so whoever hears it reads again
    reads       show the session's own changes; those of others may be missing until `sync` has returned

How a call fails:

    StoreError              refused: nothing has changed, and the same call would be refused again
    StoreUnavailableError   not sent, as the store cannot be reached: nothing has changed, try again later
    UnknownOutcomeError     sent, but the answer was lost: it may have happened or not; `sync`, read and decide
    SessionExpiredError     the session is over: its ephemerals are gone, only a new session can go on
    StoreFailedError        the store itself is broken (embedded only): the broker must stop

A call made while the connection is lost waits for it, at most until the lease ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from braidlog.core.errors import BraidlogError

ANY_VERSION: Final = -1
PERSISTENT: Final = 0
# ZooKeeper drops the connection on a request above 1 MB (jute.maxbuffer); half leaves room for what is not counted.
MAX_REQUEST_BYTES: Final = 512 * 1024


class StoreError(BraidlogError):
    """A store operation was refused. `operation` is its place in a `multi`, 0 for a single call."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.operation = 0


class NoNodeError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExistsError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists already")


class BadVersionError(StoreError):
    """The node was changed since it was read: read it again and decide again. Not every store tells its version."""

    def __init__(self, path: str, expected: int, actual: int | None = None) -> None:
        super().__init__(path, f"expected version {expected}, but it is at {'another' if actual is None else actual}")
        self.expected = expected
        self.actual = actual


class NotEmptyError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class NoChildrenForEphemeralsError(StoreError):
    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class InvalidPathError(StoreError):
    """The path breaks ZooKeeper's rules; always a bug or a hostile name, never a matter of timing."""


class RequestTooLargeError(StoreError):
    """More than `max_request_bytes` in one call; `multi` is never cut, since it is all or nothing."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(path, f"{size} bytes in one request are more than the {limit} that the store takes")


class SessionExpiredError(BraidlogError):
    """This session is over and its ephemerals are gone; only a new session can go on."""


class StoreConnectionError(BraidlogError):
    """The store could not be reached. Which of the two kinds it is says whether the call may have taken effect."""


class StoreUnavailableError(StoreConnectionError):
    """The call was not sent, or was a read: nothing has changed."""


class LeaseExpiredError(StoreUnavailableError):
    """Silent for so long, the store may have ended the session; should it answer yet, the session goes on."""


class UnknownOutcomeError(StoreConnectionError):
    """The request was sent and its answer lost: the change may have happened or not.

    Once `sync` has returned in the same session that is settled: what a read does not show then will not come any more.
    """


class StoreFailedError(BraidlogError):
    """The store cannot make changes durable any more; the broker that relies on it must stop."""


class Stat(NamedTuple):
    """What the store knows of a node beside its data. `ephemeral_owner` is a session id, or PERSISTENT."""

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    ephemeral_owner: int
    num_children: int


class Node(NamedTuple):
    data: bytes
    stat: Stat


class EventKind(IntEnum):
    """ZooKeeper's numbers."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


class Create(NamedTuple):
    """`sequential` appends ten digits that grow with every child ever created under the parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing; refuses the transaction unless the node is there at this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check
# The path that was created, the new stat, or nothing for Delete and Check.
Outcome: TypeAlias = str | Stat | None


class SessionLease:
    """Until when the store certainly keeps the session: when the last answered request was *sent*, plus the timeout.

    A broker that acts by virtue of its session (a control request, an ISR proposal, a write) calls `check` right before
    the act. No timer does it: after a pause of the process, what was queued runs before any timer.
    """

    def __init__(self, now: Callable[[], float], timeout_s: float = math.inf) -> None:
        """`now` is monotonic. The lease begins now; without a timeout it lasts until `end`."""
        self._now = now
        self._timeout_s = timeout_s
        self._deadline = now() + timeout_s

    @property
    def deadline(self) -> float:
        return self._deadline

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def valid(self) -> bool:
        return self._now() < self._deadline

    def remaining_s(self) -> float:
        return max(self._deadline - self._now(), 0.0)

    def check(self) -> None:
        if self._now() >= self._deadline:
            raise LeaseExpiredError("the coordination store has not answered within the session timeout")

    def answered(self, sent_at: float) -> None:
        """A request that was sent at this time has been answered. Answers that come after `end` change nothing."""
        self._deadline = max(self._deadline, sent_at + self._timeout_s) if self._deadline != -math.inf else -math.inf

    def end(self) -> None:
        """The session is over."""
        self._deadline = -math.inf


class CoordinationStore(Protocol):
    """One session. The module's docstring says how calls fail; watches and callbacks run on the loop."""

    @property
    def session_id(self) -> int: ...

    @property
    def expired(self) -> bool: ...

    @property
    def lease(self) -> SessionLease:
        """Never ends before the session does on the embedded store, whose sessions end with the process."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """How long the store keeps the session of a process that died; 0 where none outlives its process."""
        ...

    @property
    def max_request_bytes(self) -> int:
        """What the `request_bytes` of one call may come to."""
        ...

    def on_expiry(self, callback: Callable[[], None]) -> None:
        """Called once if the session is lost (at once if it already is), not when it is closed on purpose."""
        ...

    async def sync(self) -> None:
        """Reads that follow show every change that was answered to anybody before this call."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """The watch fires when the data changes or the node goes; it is not set if the node is missing."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Many reads at the price of about one, though not at one moment; a missing node gives None."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch fires when the node is created, changed or deleted; it is set also on a missing node."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted. The watch fires when a child comes or goes, or the node itself goes."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        """All or nothing, in order, each operation seeing those before it."""
        ...

    async def close(self) -> None:
        """End the session; its ephemerals are gone when this returns."""
        ...


# What a request takes beside paths and data: headers, lengths, flags and the ACL of a new node.
_OVERHEAD_BYTES: Final = 128


def operation_bytes(operation: Operation) -> int:
    """No less than the operation takes in a request, but for a chroot; MAX_REQUEST_BYTES leaves room for that."""
    data = len(operation.data) if isinstance(operation, Create | SetData) else 0
    return len(operation.path.encode()) + data + _OVERHEAD_BYTES


def request_bytes(operations: Sequence[Operation]) -> int:
    return sum(map(operation_bytes, operations))


def check_path(path: str) -> None:
    """ZooKeeper's rules: absolute, no empty, `.` or `..` component, no trailing slash, no control characters."""
    if path == "/":
        return
    if not path.startswith("/"):
        raise InvalidPathError(path, "a path starts with a slash")
    if "//" in path or path.endswith("/"):
        raise InvalidPathError(path, "a path has no empty component and no trailing slash")
    if "/." in path and any(component in (".", "..") for component in path.split("/")):
        raise InvalidPathError(path, "a path is absolute: no . or .. component")
    if not path.isprintable():
        raise InvalidPathError(repr(path), "a path has printable characters only")


async def ensure_path(store: CoordinationStore, path: str) -> None:
    """Create the persistent node and its missing parents, empty; being second is fine."""
    position = 0
    while position != -1:
        position = path.find("/", position + 1)
        prefix = path if position == -1 else path[:position]
        while await store.exists(prefix) is None:
            try:
                await store.create(prefix)
                break
            except NodeExistsError:
                break
            except UnknownOutcomeError:
                await store.sync()
