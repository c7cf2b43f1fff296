from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog.cluster import embedded
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import CoordinationStore, Create, NodeExistsError, SetData, StoreFailedError
from braidlog.core.clock import SystemClock
from support.memory_journal import MemoryJournalFiles
from support.store_contract import Connect, StoreContract


class SteppedExecutor(Executor):
    """Runs what was submitted when the test says so: the writer thread, one step at a time."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, fn, args))
        return future

    def step(self) -> None:
        future, fn, args = self.jobs.pop(0)
        try:
            future.set_result(fn(*args))
        except Exception as problem:
            future.set_exception(problem)


class InlineExecutor(SteppedExecutor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self.step()
        return future


def open_memory(files: MemoryJournalFiles, executor: Executor | None = None) -> EmbeddedStore:
    return EmbeddedStore.open(files, SystemClock(), executor or InlineExecutor())


class TestInMemory(StoreContract):
    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Connect]:
        self.store = open_memory(MemoryJournalFiles())

        async def connect() -> CoordinationStore:
            return self.store.connect()

        yield connect
        await self.store.close()

    async def expire(self, session: CoordinationStore) -> None:
        assert isinstance(session, EmbeddedSession)
        await self.store.expire(session)


class TestOnDisk(TestInMemory):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Connect]:
        self.store = EmbeddedStore.open(OsJournalFiles(str(self.path)), SystemClock())

        async def connect() -> CoordinationStore:
            return self.store.connect()

        yield connect
        await self.store.close()


async def ticks(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_nothing_is_answered_or_readable_before_it_is_synced() -> None:
    async def run() -> None:
        writer = SteppedExecutor()
        store = open_memory(MemoryJournalFiles(), writer)
        session = store.connect()
        seen: list[object] = []
        create = asyncio.ensure_future(session.create("/a"))
        await ticks(1)
        again = asyncio.ensure_future(session.create("/a"))
        read = asyncio.ensure_future(session.exists("/a", seen.append))
        await ticks()
        assert not create.done()
        assert not again.done()
        assert not read.done()
        writer.step()
        await ticks()
        assert create.result() == "/a"
        assert isinstance(again.exception(), NodeExistsError)
        assert read.result() is not None
        assert seen == []

    asyncio.run(run())


def test_changes_of_one_round_share_a_sync() -> None:
    async def run() -> None:
        writer = SteppedExecutor()
        session = open_memory(MemoryJournalFiles(), writer).connect()
        first = [asyncio.ensure_future(session.create(f"/a{n}")) for n in range(10)]
        await ticks()
        second = [asyncio.ensure_future(session.create(f"/b{n}")) for n in range(10)]
        await ticks()
        assert len(writer.jobs) == 1
        writer.step()
        await ticks()
        assert all(change.done() for change in first)
        assert not any(change.done() for change in second)
        writer.step()
        await ticks()
        assert all(change.done() for change in second)

    asyncio.run(run())


class FullDisk(MemoryJournalFiles):
    room = True
    syncs = True

    def append(self, name: str, data: bytes) -> None:
        if not self.room:
            super().append(name, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        super().append(name, data)

    def sync(self, name: str) -> None:
        if not self.syncs:
            raise OSError(5, "Input/output error")
        super().sync(name)


@pytest.mark.parametrize("first", [True, False])
def test_a_full_disk_refuses_changes_and_the_store_goes_on_when_there_is_room(first: bool) -> None:
    async def run() -> None:
        files = FullDisk()
        store = open_memory(files)
        session = store.connect()
        if not first:
            await session.create("/before", ephemeral=True)
        files.room = False
        with pytest.raises(StoreFailedError, match="No space left"):
            await session.create("/lost")
        assert await session.exists("/lost") is None
        files.room = True
        await session.create("/after")
        files.crash(random.Random(1))
        reopened = open_memory(files).connect()
        assert await reopened.children("/") == ["after"]

    asyncio.run(run())


async def open_on_a_full_disk(files: FullDisk) -> tuple[EmbeddedStore, EmbeddedSession]:
    """After a crash that left an ephemeral node behind; with a change that the starting broker made."""
    session = open_memory(files).connect()
    await session.create("/e", ephemeral=True)
    files.crash(random.Random(1))
    files.room = False
    store = open_memory(files)
    store.starting = True
    again = store.connect()
    assert await again.exists("/e") is None
    await again.create("/started")
    store.starting = False
    assert store.lags
    return store, again


def test_a_full_disk_does_not_refuse_what_a_start_changes() -> None:
    async def run() -> None:
        files = FullDisk()
        store, session = await open_on_a_full_disk(files)
        with pytest.raises(StoreFailedError, match="No space left"):
            await session.create("/refused")
        assert await session.children("/") == ["started"]
        files.room = True
        await session.create("/after")
        assert not store.lags
        files.crash(random.Random(1))
        assert await open_memory(files).connect().children("/") == ["after", "started"]

    asyncio.run(run())


def test_what_a_start_changed_on_a_full_disk_is_written_as_soon_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "_RETRY_S", 0.001)

    async def run() -> None:
        files = FullDisk()
        store, session = await open_on_a_full_disk(files)
        written = asyncio.Event()
        store.on_caught_up(written.set)
        with pytest.raises(StoreFailedError, match="No space left"):
            await session.create("/refused")
        files.room = True
        await asyncio.wait_for(written.wait(), 20)
        assert not store.lags
        files.crash(random.Random(1))
        assert await open_memory(files).connect().children("/") == ["started"]

    asyncio.run(run())


def test_a_crash_before_there_is_room_undoes_what_the_start_changed() -> None:
    async def run() -> None:
        files = FullDisk()
        await open_on_a_full_disk(files)
        files.crash(random.Random(1))
        assert await open_memory(files).connect().children("/") == []

    asyncio.run(run())


def test_only_a_full_disk_is_forgiven_at_a_start() -> None:
    class BrokenDisk(FullDisk):
        def append(self, name: str, data: bytes) -> None:
            if not self.room:
                raise OSError(errno.EIO, "Input/output error")
            super().append(name, data)

    async def run() -> None:
        files = BrokenDisk()
        store = open_memory(files)
        store.starting = True
        files.room = False
        with pytest.raises(StoreFailedError, match="Input/output"):
            await store.connect().create("/a")
        assert not store.lags

    asyncio.run(run())


class NoNewFiles(MemoryJournalFiles):
    room = True

    def write_whole(self, name: str, data: bytes) -> None:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_whole(name, data)


def test_a_torn_tail_is_cut_off_where_there_is_no_room_to_keep_it() -> None:
    async def run() -> None:
        files = NoNewFiles()
        session = open_memory(files).connect()
        await session.create("/a")
        (journal,) = files.names()
        sound = files.read(journal)
        files.append(journal, b"torn")
        files.room = False
        assert await open_memory(files).connect().children("/") == ["a"]
        assert files.read(journal) == sound
        assert files.names() == [journal]

    asyncio.run(run())


def test_a_store_closes_without_room_for_a_snapshot() -> None:
    async def run() -> None:
        files = NoNewFiles()
        store = open_memory(files)
        await store.connect().create("/a", bytes(100_000))
        files.room = False
        await store.close()
        assert await open_memory(files).connect().children("/") == ["a"]

    asyncio.run(run())


def test_a_failed_sync_fails_the_store_for_good() -> None:
    async def run() -> None:
        files = FullDisk()
        store = open_memory(files)
        session = store.connect()
        files.syncs = False
        reported: list[StoreFailedError] = []
        store.on_failure(reported.append)
        with pytest.raises(StoreFailedError, match="Input/output"):
            await session.create("/a")
        files.syncs = True
        with pytest.raises(StoreFailedError):
            await session.create("/b")
        assert store.failure is not None
        assert reported == [store.failure]

    asyncio.run(run())


def test_sessions_of_a_dead_process_leave_no_ephemerals_and_zxids_go_on() -> None:
    async def run() -> None:
        files = MemoryJournalFiles()
        session = open_memory(files).connect()
        await session.create("/e", ephemeral=True)
        stat = await session.exists("/e")
        assert stat is not None
        files.crash(random.Random(2))
        reopened = open_memory(files)
        again = reopened.connect()
        assert again.session_id > session.session_id
        assert await again.exists("/e") is None
        await again.create("/e", ephemeral=True)
        newer = await again.exists("/e")
        assert newer is not None
        assert newer.czxid > stat.czxid

    asyncio.run(run())


def test_a_long_journal_is_folded_and_says_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(OsJournalFiles(str(tmp_path)), SystemClock())
        session = store.connect()
        await session.create("/big")
        await session.create("/gone", ephemeral=True)
        for turn in range(30):
            await session.multi([SetData("/big", bytes([turn]) * 100_000), Create(f"/n{turn}", b"x")])
        node = await session.get("/big")
        await store.close()
        files = OsJournalFiles(str(tmp_path))
        assert [name.partition("-")[0] for name in files.names()] == ["snapshot"]
        reopened = EmbeddedStore.open(files, SystemClock())
        again = reopened.connect()
        assert await again.get("/big") == node
        assert len(await again.children("/")) == 31
        await again.create("/more")
        await reopened.close()
        last = EmbeddedStore.open(OsJournalFiles(str(tmp_path)), SystemClock())
        assert await last.connect().exists("/more") is not None
        await last.close()

    asyncio.run(run())
