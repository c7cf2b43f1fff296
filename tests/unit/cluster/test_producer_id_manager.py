"""Producer ids: blocks of a thousand, none given twice, claimed before they are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.producer_id_manager import ProducerIdManager, claim_block
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId
from support.memory_journal import MemoryJournalFiles


def on_store(body: Callable[[EmbeddedStore], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
            await body(store)
            await store.close()

        asyncio.run(run())

    return test


def manager(store: EmbeddedStore, broker_id: int) -> ProducerIdManager:
    return ProducerIdManager(partial(claim_block, store.connect(), BrokerId(broker_id)), Tasks("test"))


@on_store
async def test_producer_ids_are_never_given_twice(store: EmbeddedStore) -> None:
    one, two = manager(store, 1), manager(store, 2)
    given: list[int] = []
    for _ in range(30):
        given += await asyncio.gather(*(ids.next_id() for ids in (one, two) for _ in range(50)))
    assert len(set(given)) == len(given) == 3000
    restarted = manager(store, 1)
    assert await restarted.next_id() > max(given)


@on_store
async def test_blocks_are_contiguous_thousands(store: EmbeddedStore) -> None:
    session = store.connect()
    blocks = [await claim_block(session, BrokerId(3)) for _ in range(3)]
    assert [(block.first, block.last) for block in blocks] == [(0, 999), (1000, 1999), (2000, 2999)]


@on_store
async def test_ids_are_claimed_in_the_background_once(store: EmbeddedStore) -> None:
    tasks = Tasks("test")
    session = store.connect()
    ids = ProducerIdManager(partial(claim_block, session, BrokerId(1)), tasks)
    for _ in range(3):
        with pytest.raises(CoordinatorLoadInProgressError):
            ids.take()
    assert len(tasks) == 1
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    assert ids.take() == 0
    assert (await claim_block(session, BrokerId(1))).first == 1000
    await tasks.close()
