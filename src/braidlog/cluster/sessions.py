"""A session of the embedded store: the `CoordinationStore` that the rest of the broker holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from braidlog.cluster.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    NoNodeError,
    Operation,
    Outcome,
    SessionExpiredError,
    SessionLease,
    SetData,
    Stat,
    Watch,
    check_path,
)
from braidlog.cluster.tree import ZnodeTree
from braidlog.cluster.watches import WatchTable


class SessionHost(Protocol):
    """What a session needs of its store."""

    @property
    def tree(self) -> ZnodeTree: ...

    @property
    def watches(self) -> WatchTable: ...

    async def submit(self, operations: Sequence[Operation], session: int) -> list[Outcome]: ...

    async def settled(self) -> None: ...

    async def end_session(self, session: EmbeddedSession) -> None: ...


class EmbeddedSession:
    """Reads take their value from the tree in one step and answer when all that it shows is durable."""

    def __init__(self, host: SessionHost, session_id: int, now: Callable[[], float]) -> None:
        self._host = host
        self._session_id = session_id
        self._lease = SessionLease(now)
        self._open = True
        self._expired = False
        self._on_expiry: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def expired(self) -> bool:
        return self._expired

    @property
    def open(self) -> bool:
        return self._open

    @property
    def lease(self) -> SessionLease:
        return self._lease

    @property
    def session_timeout_s(self) -> float:
        return 0.0

    @property
    def max_request_bytes(self) -> int:
        return sys.maxsize

    def on_expiry(self, callback: Callable[[], None]) -> None:
        if self._expired:
            callback()
        else:
            self._on_expiry.append(callback)

    async def sync(self) -> None:
        self._check_open()
        await self._host.settled()

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        tree = self._readable(path)
        found = tree.find(path)
        if found is None:
            await self._host.settled()
            raise NoNodeError(path)
        node = Node(found.data, found.stat())
        if watch is not None:
            self._host.watches.watch_data(path, self, watch)
        await self._host.settled()
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._check_open()
        find = self._host.tree.find
        nodes: list[Node | None] = []
        for path in paths:
            found = find(path)
            nodes.append(None if found is None else Node(found.data, found.stat()))
        await self._host.settled()
        return nodes

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        found = self._readable(path).find(path)
        stat = None if found is None else found.stat()
        if watch is not None:
            self._host.watches.watch_data(path, self, watch)
        await self._host.settled()
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        found = self._readable(path).find(path)
        if found is None:
            await self._host.settled()
            raise NoNodeError(path)
        names = sorted(found.children) if found.children else []
        if watch is not None:
            self._host.watches.watch_children(path, self, watch)
        await self._host.settled()
        return names

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        (created,) = await self.multi((Create(path, data, ephemeral, sequential),))
        return cast(str, created)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi((SetData(path, data, version),))
        return cast(Stat, stat)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi((Delete(path, version),))

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._check_open()
        return await self._host.submit(operations, self._session_id)

    async def close(self) -> None:
        self._open = False
        self._lease.end()
        await self._host.end_session(self)

    def lose(self) -> None:
        """The store ended this session."""
        if not self._open:
            return
        self._open = False
        self._expired = True
        self._lease.end()
        for callback in self._on_expiry:
            callback()

    def _readable(self, path: str) -> ZnodeTree:
        self._check_open()
        check_path(path)
        return self._host.tree

    def _check_open(self) -> None:
        if not self._open:
            raise SessionExpiredError(f"session {self._session_id:#x} is over; open a new one")
