from __future__ import annotations

import asyncio

import pytest

from braidlog.cluster.backup import tree_walk
from braidlog.cluster.backup.tree_walk import walk_store, walk_tree
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.store import Create
from braidlog.core.clock import ManualClock
from support.memory_journal import MemoryJournalFiles

PATHS = [
    "/admin",
    "/brokers",
    "/brokers/topics",
    "/brokers/topics/a",
    "/brokers/topics/a/partitions",
    *(f"/brokers/topics/a/partitions/{place}{more}" for place in range(5) for more in ("", "/state")),
    "/brokers/topics/a-b",
    "/brokers/topics/b",
    "/brokers/topics/b/partitions",
    "/config",
    "/config/topics",
    "/config/topics/a",
]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 500])
def test_parents_come_first_and_siblings_by_name(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    async def run() -> None:
        monkeypatch.setattr(tree_walk, "_CHUNK", chunk)
        store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        session = store.connect()
        await session.multi([Create(path, path.encode()) for path in [*PATHS, "/zookeeper", "/zookeeper/quota"]])
        await session.create("/brokers/z", ephemeral=True)
        walked = [node async for node in walk_store(session)]
        in_order = sorted([*PATHS, "/brokers/z"], key=lambda path: path.split("/"))
        assert [node.path for node in walked] == in_order
        assert [node.path for node in walked if node.is_ephemeral] == ["/brokers/z"]
        assert all(node.data == node.path.encode() for node in walked if not node.is_ephemeral)
        assert list(walk_tree(store.tree)) == walked

    asyncio.run(run())
