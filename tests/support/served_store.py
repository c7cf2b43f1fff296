"""A store that is served over a socket, in this process, with sessions on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.shared_store.store_connection import SharedStore, SharedStoreSettings
from braidlog.cluster.shared_store.store_server import StoreServer
from braidlog.cluster.zookeeper.session import ZooKeeperSession
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry


class Served:
    """A store that is served from a directory, and may be stopped, killed and served again."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "store.sock")
        self._directory = directory
        self._opened: list[ZooKeeperSession] = []

    async def serve(self) -> None:
        self._files = OsJournalFiles(str(self._directory))
        self.store = EmbeddedStore.open(self._files, SystemClock(), keep_ephemerals=True)
        self.server = StoreServer(self.store, self._files, SystemClock())
        await self.server.start(self.path)

    async def open(self, owner: str = "", timeout_ms: int = 30_000) -> ZooKeeperSession:
        settings = SharedStoreSettings(self.path, owner, timeout_ms, 10_000)
        session = await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()
        self._opened.append(session)
        return session

    async def stop(self) -> None:
        """With a clean end of the process."""
        await self.server.close()
        await self.store.close(end_sessions=False)

    async def die(self) -> None:
        """As a process that is killed: nothing is written any more, connections break."""
        server = self.server
        assert server._server is not None
        server._server.close()
        for connection in list(server._connections):
            assert connection._transport is not None
            connection._transport.abort()
        await server._tasks.close()
        self._files.close()

    async def close(self) -> None:
        for session in self._opened:
            await session.close()
        await self.stop()


def run(directory: Path, body: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        served = Served(directory)
        await served.serve()
        async with asyncio.timeout(30):
            await body(served)
            await served.close()

    asyncio.run(limited())
