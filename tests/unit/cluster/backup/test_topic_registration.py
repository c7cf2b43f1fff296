from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.backup.topic_registration import ImportedTopic, check_new_topic, register_topic, stored_topic
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.producer_id_manager import claim_block
from braidlog.cluster.records import PartitionStateRecord, TopicRecord
from braidlog.cluster.registration import cluster_id, prepare_store
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.core.clock import ManualClock
from braidlog.core.errors import UserError
from braidlog.core.types import BrokerId
from support.memory_journal import MemoryJournalFiles

ID, OTHER = bytes(range(16)), bytes(range(16, 32))
TOPIC = ImportedTopic("orders", ID, [7, -1], 5432, {"retention.ms": "-1"})


def with_store(body: Callable[[EmbeddedSession, str], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
            await prepare_store(session)
            await body(session, await cluster_id(session))

        asyncio.run(run())

    return test


@with_store
async def test_a_topic_is_registered_with_epochs_that_go_on(store: EmbeddedSession, cluster: str) -> None:
    assert await stored_topic(store, "orders") is None
    assert await check_new_topic(store, cluster, "orders", ID) == ID
    await register_topic(store, TOPIC, 3)
    assert await stored_topic(store, "orders") == ({"retention.ms": "-1"}, 2, {0: 8, 1: 0})
    node = await store.get(paths.topic("orders"))
    assert records.decode_topic("", node.data) == TopicRecord(ID, ((3,), (3,)))
    state = await store.get(paths.partition_state("orders", 0))
    assert records.decode_partition_state("", state.data) == PartitionStateRecord(3, 8, (3,), 0)


@with_store
async def test_producer_ids_of_the_log_are_not_given_out_again(store: EmbeddedSession, cluster: str) -> None:
    await claim_block(store, BrokerId(3))
    await register_topic(store, TOPIC, 3)
    assert (await claim_block(store, BrokerId(3))).first == 6000
    await register_topic(store, TOPIC._replace(name="older", topic_id=OTHER, max_producer_id=17), 3)
    assert (await claim_block(store, BrokerId(3))).first == 7000


@with_store
async def test_names_and_ids_that_are_taken(store: EmbeddedSession, cluster: str) -> None:
    await register_topic(store, TOPIC._replace(name="or.ders"), 3)
    with pytest.raises(UserError, match=r"topic or\.ders exists"):
        await check_new_topic(store, cluster, "or.ders", ID)
    with pytest.raises(UserError, match=r"collides with or\.ders"):
        await check_new_topic(store, cluster, "or_ders", ID)
    assert await check_new_topic(store, cluster, "another", ID, lambda: OTHER) == OTHER
    assert await check_new_topic(store, cluster, "another", None, lambda: OTHER) == OTHER
    await store.create(paths.deleted_topic("gone"))
    with pytest.raises(UserError, match="still being deleted"):
        await check_new_topic(store, cluster, "gone", ID)


@with_store
async def test_a_store_of_another_cluster_or_with_brokers_is_refused(store: EmbeddedSession, cluster: str) -> None:
    with pytest.raises(UserError, match=f"is of cluster {cluster}, and the data directory of cluster other"):
        await check_new_topic(store, "other", "orders", ID)
    await store.create(paths.broker(1), b"{}", ephemeral=True)
    with pytest.raises(UserError, match="brokers 1 are registered"):
        await check_new_topic(store, cluster, "orders", ID)
