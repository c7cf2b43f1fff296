"""The coordination store that brokers agree through: a tree of small versioned nodes, as ZooKeeper has it.

A `CoordinationStore` is one session of such a store. What every backend promises (`tests/unit/cluster` has the
contract suite that each one passes):

    order       changes get zxids that only grow, also over restarts; one session's calls take effect in call order
    durability  a call that returned is on disk; nothing is readable, and no watch fires, before that
    atomicity   `multi` takes effect as a whole or raises what its first impossible operation met
    ephemerals  vanish with their session, whether it is closed, expires or its process dies
    watches     fire once; a session learns of a change by its watch before it can read that change
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from braidlog.core.errors import BraidlogError

ANY_VERSION: Final = -1
PERSISTENT: Final = 0


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
    """The node was changed since it was read: read it again and decide again."""

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(path, f"expected version {expected}, but it is at {actual}")
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


class SessionExpiredError(BraidlogError):
    """This session is over and its ephemerals are gone; only a new session can go on."""


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


class CoordinationStore(Protocol):
    """One session. Calls raise StoreError, SessionExpiredError or StoreFailedError; watches run on the loop."""

    @property
    def session_id(self) -> int: ...

    @property
    def expired(self) -> bool: ...

    def on_expiry(self, callback: Callable[[], None]) -> None:
        """Called once if the session is lost, not when it is closed on purpose."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """The watch fires when the data changes or the node goes; it is not set if the node is missing."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Many reads at the price of about one; a missing node gives None."""
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
        if await store.exists(prefix) is None:
            try:
                await store.create(prefix)
            except NodeExistsError:
                continue
