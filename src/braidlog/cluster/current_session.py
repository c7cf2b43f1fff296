"""The newest session of a `StoreClient` as a store of its own, for those who need not know when sessions change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braidlog.cluster.store import (
    ANY_VERSION,
    CoordinationStore,
    Node,
    Operation,
    Outcome,
    SessionLease,
    Stat,
    Watch,
)
from braidlog.cluster.store_client import StoreClient


class CurrentSession:
    """A watch ends with the session in which it was set: who sets one listens to the client as well."""

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
