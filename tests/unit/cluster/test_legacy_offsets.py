"""Offsets of version 0, in the coordination store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.cluster.registration import prepare_store
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import InvalidGroupIdError
from braidlog.core.types import TopicPartition
from support.memory_journal import MemoryJournalFiles

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B7 = TopicPartition("b", 7)


def on_store(body: Callable[[EmbeddedStore], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
            await body(store)
            await store.close()

        asyncio.run(run())

    return test


@on_store
async def test_offsets_lie_where_operators_look_for_them(store: EmbeddedStore) -> None:
    session = store.connect()
    await prepare_store(session)
    await LegacyOffsets(session).commit("g", [(A1, 42)])
    assert (await session.get("/consumers/g/offsets/a/1")).data == b"42"
    assert await session.children("/consumers/g") == ["offsets"]


@on_store
async def test_offsets_are_overwritten_and_read(store: EmbeddedStore) -> None:
    offsets = LegacyOffsets(store.connect())
    await offsets.commit("g", [(A0, 1), (B7, 2)])
    await offsets.commit("g", [(A0, 3), (A1, 4)])
    assert await offsets.fetch("g", [A0, A1, B7, TopicPartition("c", 0)]) == [3, 4, 2, None]
    assert await offsets.fetch("h", [A0]) == [None]


@on_store
async def test_one_commit_is_one_change_of_the_store(store: EmbeddedStore) -> None:
    session = store.connect()
    await prepare_store(session)
    before = store.zxid
    await LegacyOffsets(session).commit("g", [(A0, 1), (A1, 2), (B7, 3)])
    assert store.zxid == before + 1


@on_store
async def test_commits_at_once_all_arrive(store: EmbeddedStore) -> None:
    writers = [LegacyOffsets(store.connect()) for _ in range(5)]
    places = [TopicPartition("a", index) for index in range(5)]
    await asyncio.gather(*(w.commit("g", [(p, p.partition)]) for w, p in zip(writers, places, strict=True)))
    assert await writers[0].fetch("g", places) == [0, 1, 2, 3, 4]


@on_store
async def test_what_is_no_number_counts_as_nothing(store: EmbeddedStore) -> None:
    session = store.connect()
    offsets = LegacyOffsets(session)
    await offsets.commit("g", [(A0, 1), (A1, 1)])
    await session.set("/consumers/g/offsets/a/0", b"")
    await session.set("/consumers/g/offsets/a/1", b"soon")
    assert await offsets.fetch("g", [A0, A1]) == [None, None]


@pytest.mark.parametrize("group_id", ["", ".", "..", "a/b", "../brokers", "bell\x07", "\ud800"])
def test_group_ids_that_are_no_name_of_a_node(group_id: str) -> None:
    @on_store
    async def refused(store: EmbeddedStore) -> None:
        offsets = LegacyOffsets(store.connect())
        with pytest.raises(InvalidGroupIdError):
            await offsets.commit(group_id, [(A0, 1)])
        with pytest.raises(InvalidGroupIdError):
            await offsets.fetch(group_id, [A0])
        assert store.zxid == 0

    refused()
