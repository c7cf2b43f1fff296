from __future__ import annotations

import pytest

from braidlog.broker import coordination
from braidlog.broker.coordination import announce_failed_directory
from braidlog.cluster import paths, records, registration
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.store import StoreUnavailableError
from braidlog.core.clock import ManualClock
from braidlog.core.types import BrokerId
from support.memory_journal import MemoryJournalFiles


async def test_a_failed_directory_is_announced_once_the_store_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination, "_ANNOUNCE_AGAIN_S", 0)
    store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
    session = store.connect()
    await registration.prepare_store(session)
    create, refusals = session.create, [StoreUnavailableError("no connection")]

    async def create_later(*args: object, **more: object) -> str:
        if refusals:
            raise refusals.pop()
        return await create(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "create", create_later)
    await announce_failed_directory(session, BrokerId(7))
    (name,) = await session.children(paths.LOG_DIR_EVENTS)
    path = f"{paths.LOG_DIR_EVENTS}/{name}"
    assert records.decode_log_dir_event(path, (await session.get(path)).data) == 7
    await store.close()
