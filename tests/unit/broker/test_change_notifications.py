"""Notifications are read once and in order, whatever becomes of the session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from braidlog.broker import change_notifications
from braidlog.broker.change_notifications import ChangeNotificationListener
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.store import CoordinationStore, StoreUnavailableError, Watch, ensure_path
from braidlog.core.clock import ManualClock
from braidlog.core.tasks import Tasks
from support.memory_journal import MemoryJournalFiles


class Noting(ChangeNotificationListener):
    notifications_path = "/news"
    subject = "news"

    def __init__(self, store: CoordinationStore, tasks: Tasks) -> None:
        super().__init__(store, tasks)
        self.loads = 0
        self.read: list[bytes] = []
        self.problems: list[Exception] = []
        self.progress = asyncio.Event()

    async def _load(self) -> None:
        if self.problems:
            raise self.problems.pop()
        self.loads += 1
        self.progress.set()

    async def _read_changed(self, notifications: Mapping[str, bytes]) -> None:
        self.read += notifications.values()
        self.progress.set()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Noting, CoordinationStore, EmbeddedStore]]:
    store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
    session = store.connect()
    await ensure_path(session, "/news")
    tasks = Tasks("test")
    yield Noting(session, tasks), session, store
    await tasks.close()
    await store.close()


async def tell(session: CoordinationStore, what: bytes) -> str:
    return await session.create("/news/change_", what, sequential=True)


async def test_only_what_is_new_is_read_and_in_order() -> None:
    async with listening() as (listener, session, _):
        await tell(session, b"before")
        await listener.start()
        await session.create("/news/other", b"not numbered")
        for what in (b"first", b"second"):
            await tell(session, what)
        await listener.catch_up()
        await listener.catch_up()
        assert listener.read == [b"first", b"second"]
        assert listener.loads == 1


async def test_the_watch_is_set_again_and_again() -> None:
    async with listening() as (listener, session, _):
        await listener.start()
        for number in range(3):
            listener.progress.clear()
            await tell(session, b"%d" % number)
            await listener.progress.wait()
        assert listener.read == [b"0", b"1", b"2"]


async def test_a_new_session_reads_everything_and_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notifications, "_RETRY_S", 0.0)
    async with listening() as (listener, session, store):
        await listener.start()
        # The first try of the next session fails; it is made again in the background.
        listener.problems.append(StoreUnavailableError("away for a moment"))
        listener.progress.clear()
        await listener.session_opened(store.connect())
        assert listener.loads == 1
        await listener.progress.wait()
        assert listener.loads == 2
        listener.progress.clear()
        await tell(session, b"later")
        await listener.progress.wait()
        assert listener.read[-1] == b"later"


async def test_a_server_that_lags_behind_is_not_read_before_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known already may have come from another one."""
    async with listening() as (listener, session, _):
        asked: list[str] = []
        sync, children = session.sync, session.children

        async def noted_sync() -> None:
            asked.append("sync")
            await sync()

        async def noted_children(path: str, watch: Watch | None = None) -> list[str]:
            asked.append(path)
            return await children(path, watch)

        monkeypatch.setattr(session, "sync", noted_sync)
        monkeypatch.setattr(session, "children", noted_children)
        await listener.start()
        assert asked == ["sync", "/news"]
