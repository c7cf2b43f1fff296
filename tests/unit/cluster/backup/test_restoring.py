from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from braidlog.cluster import paths
from braidlog.cluster.backup.dumping import dump_store, dump_tree, stored_tree
from braidlog.cluster.backup.restoring import restore_embedded, restore_store
from braidlog.cluster.backup.tree_walk import walk_tree
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.records import PartitionStateRecord, TopicRecord, encode_partition_state, encode_topic
from braidlog.cluster.registration import cluster_id, generate_broker_id, prepare_store
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import Create, Operation, Outcome, RequestTooLargeError, UnknownOutcomeError, request_bytes
from braidlog.core.clock import ManualClock, SystemClock
from braidlog.core.errors import UserError
from support.memory_journal import MemoryJournalFiles

PARTITIONS = 40


async def fill(session: EmbeddedSession, replicas: tuple[int, ...] = (1,), topics: Sequence[str] = ("a", "b")) -> None:
    await prepare_store(session)
    await cluster_id(session)
    for _ in range(3):
        await generate_broker_id(session)
    for name in topics:
        await session.create(paths.topic(name), encode_topic(TopicRecord(bytes(16), (replicas,) * PARTITIONS)))
        await session.create(paths.partitions(name))
        for index in range(PARTITIONS):
            state = encode_partition_state(PartitionStateRecord(replicas[0], 4, replicas, 1))
            await session.multi(
                [Create(paths.partition(name, index)), Create(paths.partition_state(name, index), state)]
            )
    await session.create(paths.CONFIG_CHANGE, b"{}", sequential=True)


async def dump_of(replicas: tuple[int, ...], path: Path, topics: Sequence[str] = ("a", "b")) -> list[tuple[str, bytes]]:
    store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
    session = store.connect()
    await fill(session, replicas, topics)
    await dump_store(session, path, secrets=True)
    return contents(store)


def contents(store: EmbeddedStore) -> list[tuple[str, bytes]]:
    return [(node.path, node.data) for node in walk_tree(store.tree) if "config_change_" not in node.path]


class Narrow:
    """A session that takes so much at once, loses answers, and breaks at one transaction."""

    def __init__(self, session: EmbeddedSession, limit: int, *, lost: bool = False, breaks_at: int = -1) -> None:
        self._session = session
        self.max_request_bytes = limit
        self._lost = lost
        self._breaks_at = breaks_at
        self.batches: list[list[str]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        assert request_bytes(operations) <= self.max_request_bytes
        self.batches.append([each.path for each in operations])
        number = len(self.batches)
        if number == self._breaks_at:
            raise RequestTooLargeError("/x", 1, 0)
        if self._lost and number % 3 == 0:
            raise UnknownOutcomeError("not sent")
        outcomes = await self._session.multi(operations)
        if self._lost and number % 3 == 1:
            raise UnknownOutcomeError("sent")
        return outcomes


def test_a_small_tree_is_restored_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        before = await dump_of((1, 2, 3), tmp_path / "dump")
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        restored = await restore_store(store.connect(), tmp_path / "dump", replace=False)
        assert contents(store) == before
        assert (restored.transactions, restored.removed, restored.checked.contents.partitions) == (1, 0, 80)
        # Whoever comes next gets an id that nobody had.
        assert await generate_broker_id(store.connect()) == 1004

    asyncio.run(run())


@pytest.mark.parametrize("lost", [False, True])
def test_a_large_tree_takes_transactions_and_the_clusters_id_comes_last(tmp_path: Path, lost: bool) -> None:
    async def run() -> None:
        before = await dump_of((1,), tmp_path / "dump")
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        session = Narrow(store.connect(), 3000, lost=lost)
        restored = await restore_store(session, tmp_path / "dump", replace=False)  # type: ignore[arg-type]
        assert contents(store) == before
        assert restored.transactions > 10
        assert [number for number, batch in enumerate(session.batches) if paths.CLUSTER_ID in batch][-1:] == [
            len(session.batches) - 1
        ]

    asyncio.run(run())


def test_what_a_failed_try_has_made_is_removed(tmp_path: Path) -> None:
    async def run() -> None:
        await dump_of((1,), tmp_path / "dump")
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        session = Narrow(store.connect(), 3000, breaks_at=5)
        with pytest.raises(UserError, match="nothing was restored"):
            await restore_store(session, tmp_path / "dump", replace=False)  # type: ignore[arg-type]
        assert contents(store) == []

    asyncio.run(run())


def test_a_tree_that_is_not_empty_is_kept_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        before = await dump_of((1,), tmp_path / "dump")
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        session = store.connect()
        await fill(session, topics=["other"])
        await session.create("/zookeeper", b"not ours")
        with pytest.raises(UserError, match="--replace removes them"):
            await restore_store(session, tmp_path / "dump", replace=False)
        narrow = Narrow(session, 3000)
        restored = await restore_store(narrow, tmp_path / "dump", replace=True)  # type: ignore[arg-type]
        assert narrow.batches[0][0] == paths.CLUSTER_ID
        assert restored.removed > PARTITIONS
        assert contents(store) == before
        assert (await session.get("/zookeeper")).data == b"not ours"

    asyncio.run(run())


def test_brokers_that_run_are_named(tmp_path: Path) -> None:
    async def run() -> None:
        await dump_of((1,), tmp_path / "dump")
        session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
        await prepare_store(session)
        await session.create("/brokers/ids/7", b"{}", ephemeral=True)
        with pytest.raises(UserError, match="brokers 7 are registered"):
            await restore_store(session, tmp_path / "dump", replace=True)

    asyncio.run(run())


def test_a_node_that_no_request_can_hold_is_refused_before_anything_is_removed(tmp_path: Path) -> None:
    async def run() -> None:
        await dump_of((1,), tmp_path / "dump")
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        await fill(store.connect(), topics=["other"])
        before = contents(store)
        narrow = Narrow(store.connect(), 400)
        with pytest.raises(UserError, match=r"takes \d+ bytes, and ZooKeeper 400"):
            await restore_store(narrow, tmp_path / "dump", replace=True)  # type: ignore[arg-type]
        assert contents(store) == before

    asyncio.run(run())


def test_an_embedded_store_is_replaced_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        directory = str(tmp_path / "data")
        before = await dump_of((1,), tmp_path / "dump")
        restored = restore_embedded(tmp_path / "dump", directory, replace=False)
        assert (restored.transactions, restored.removed) == (1, 0)
        store = EmbeddedStore.open(OsJournalFiles(directory), SystemClock())
        assert contents(store) == before
        with pytest.raises(UserError, match="in use by another broker"):
            restore_embedded(tmp_path / "dump", directory, replace=True)
        zxid = store.zxid
        await store.close()
        with pytest.raises(UserError, match="--replace removes them"):
            restore_embedded(tmp_path / "dump", directory, replace=False)
        again = await dump_of((1,), tmp_path / "other", ["c"])
        restore_embedded(tmp_path / "other", directory, replace=True)
        store = EmbeddedStore.open(OsJournalFiles(directory), SystemClock())
        assert contents(store) == again
        # An older journal that a crash left behind would not be read into it.
        assert store.zxid > zxid
        assert await generate_broker_id(store.connect()) == 1004
        await store.close()
        dump_tree(stored_tree(directory), tmp_path / "third", secrets=True)

    asyncio.run(run())


@pytest.mark.parametrize("replicas", [(1, 2), (2,)])
def test_a_single_broker_must_have_all_partitions(tmp_path: Path, replicas: tuple[int, ...]) -> None:
    async def run() -> None:
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        session = store.connect()
        await fill(session, topics=["a"])
        await session.create(paths.topic("b"), encode_topic(TopicRecord(bytes(16), (replicas,))))
        await dump_store(session, tmp_path / "dump", secrets=True)

    asyncio.run(run())
    with pytest.raises(UserError, match=r"replicas on brokers \[1, 2\], and an embedded store has one broker"):
        restore_embedded(tmp_path / "dump", str(tmp_path / "data"), replace=False)
    assert not (tmp_path / "data").exists()
