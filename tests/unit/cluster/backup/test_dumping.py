from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from braidlog.cluster.backup import dumping
from braidlog.cluster.backup.dump_file import check_dump, read_dump
from braidlog.cluster.backup.dumping import dump_store, dump_tree, stored_tree
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.registration import cluster_id, generate_broker_id, prepare_store
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import Node
from braidlog.core.clock import ManualClock, SystemClock
from braidlog.core.errors import UserError
from support.memory_journal import MemoryJournalFiles


async def small_cluster(session: EmbeddedSession) -> None:
    await prepare_store(session)
    await cluster_id(session)
    await generate_broker_id(session)
    await session.create("/brokers/ids/1", b"{}", ephemeral=True)
    await session.create("/config/users/alice", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}')


def test_a_store_in_use_is_dumped_from_its_files(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(OsJournalFiles(str(tmp_path / "data")), SystemClock())
        await small_cluster(store.connect())
        dump = tmp_path / "dump"
        dumped = dump_tree(stored_tree(str(tmp_path / "data")), dump, secrets=False)
        assert (dumped.left_out.ephemerals, dumped.left_out.secrets, dumped.contents.users) == (1, 1, 1)
        assert os.stat(dump).st_mode & 0o777 == 0o600
        with dump.open("rb") as file:
            nodes = {node.path: node for node in read_dump(file, "f")}
        assert nodes["/brokers/seqid"].version == 1
        assert nodes["/config/users/alice"].data == b'{"version":1,"config":{}}'
        assert "/brokers/ids/1" not in nodes
        await store.close()

    asyncio.run(run())


def test_files_that_a_broker_is_replacing_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(OsJournalFiles(str(tmp_path)), SystemClock())
        await small_cluster(store.connect())
        await store.close()

    asyncio.run(run())
    looks = 0
    real = dumping.look

    def look(files: dumping.StoredFiles) -> dumping.ZnodeTree:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise FileNotFoundError
        return real(files)

    monkeypatch.setattr(dumping, "look", look)
    slept: list[float] = []
    assert stored_tree(str(tmp_path), slept.append).find("/cluster/id") is not None
    assert len(slept) == 1


def test_a_directory_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no coordination store"):
        stored_tree(str(tmp_path))
    with pytest.raises(UserError, match="is no directory"):
        stored_tree(str(tmp_path / "missing"))
    assert list(tmp_path.iterdir()) == []


class Changing:
    """A session whose tree another one changes after each walk, so many times."""

    def __init__(self, session: EmbeddedSession, times: int) -> None:
        self._session = session
        self._times = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def sync(self) -> None:
        if self._times:
            self._times -= 1
            await self._session.set("/controller_epoch", b"%d" % self._times)

    async def get_many(self, paths: list[str]) -> list[Node | None]:
        return await self._session.get_many(paths)


@pytest.mark.parametrize(("changes", "point_in_time"), [(0, True), (2, True), (4, True), (100, False)])
def test_a_tree_that_changes_is_read_again_and_then_said_to_change(
    tmp_path: Path, changes: int, point_in_time: bool
) -> None:
    async def run() -> None:
        session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
        await small_cluster(session)
        await session.create("/controller_epoch", b"1")
        dump = tmp_path / "dump"
        dumped = await dump_store(Changing(session, changes), dump, secrets=True)  # type: ignore[arg-type]
        assert dumped.point_in_time is point_in_time
        with dump.open("rb") as file:
            assert check_dump(file, "f").point_in_time is point_in_time

    asyncio.run(run())


def test_nothing_is_overwritten_or_left_half_written(tmp_path: Path) -> None:
    async def run() -> None:
        session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
        dump = tmp_path / "dump"
        with pytest.raises(UserError, match="no cluster at that path"):
            await dump_store(session, dump, secrets=True)
        assert os.listdir(tmp_path) == []
        await small_cluster(session)
        os.close(os.open(dump, os.O_CREAT))
        with pytest.raises(UserError, match="exists: name another file, or add --overwrite"):
            await dump_store(session, dump, secrets=True)
        await dump_store(session, dump, secrets=True, overwrite=True)
        assert os.listdir(tmp_path) == ["dump"]
        with pytest.raises(UserError, match="cannot write"):
            await dump_store(session, tmp_path / "no" / "where", secrets=True)

    asyncio.run(run())
