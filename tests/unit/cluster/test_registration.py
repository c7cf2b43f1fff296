from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from braidlog.cluster import paths, registration
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.loading import load
from braidlog.cluster.records import BrokerRecord, FeaturesRecord
from braidlog.core.clock import ManualClock
from braidlog.core.errors import FatalError
from braidlog.core.types import BrokerId, Endpoint
from support.memory_journal import MemoryJournalFiles

RECORD = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, "rack")
LEVELS = FeaturesRecord(True, {"group.version": 1})


def on_store(body: Callable[[EmbeddedStore], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
            await body(store)
            await store.close()

        asyncio.run(run())

    return test


@on_store
async def test_paths_are_prepared_once(store: EmbeddedStore) -> None:
    session = store.connect()
    await registration.prepare_store(session)
    zxid = store.zxid
    assert zxid == 1
    await registration.prepare_store(session)
    assert store.zxid == zxid
    assert all(await session.get_many(paths.PERSISTENT_PATHS))


@on_store
async def test_brokers_that_prepare_at_once_both_succeed(store: EmbeddedStore) -> None:
    one, two = store.connect(), store.connect()
    await asyncio.gather(registration.prepare_store(one), registration.prepare_store(two))
    assert all(await one.get_many(paths.PERSISTENT_PATHS))


@on_store
async def test_the_cluster_id_is_made_once(store: EmbeddedStore) -> None:
    one, two = store.connect(), store.connect()
    ids = await asyncio.gather(registration.cluster_id(one), registration.cluster_id(two))
    assert ids[0] == ids[1]
    assert len(ids[0]) == 22
    assert await registration.cluster_id(two) == ids[0]


@on_store
async def test_generated_broker_ids_are_above_the_reserved_and_differ(store: EmbeddedStore) -> None:
    session = store.connect()
    assert await registration.last_broker_id(session) is None
    assert await registration.generate_broker_id(session) == 1001
    assert await registration.generate_broker_id(session) == 1002
    assert await registration.last_broker_id(session) == 1002
    assert await registration.generate_broker_id(session, reserved_max=5) == 8


@on_store
async def test_a_registration_gives_a_growing_epoch_and_is_seen(store: EmbeddedStore) -> None:
    first = store.connect()
    await registration.prepare_store(first)
    epoch = await registration.register(first, BrokerId(1), RECORD)
    assert await registration.register(first, BrokerId(1), RECORD) == epoch
    broker = (await load(first)).image.brokers[BrokerId(1)]
    assert (broker.epoch, broker.rack, broker.endpoints) == (epoch, "rack", RECORD.endpoints)
    await first.close()
    second = store.connect()
    assert (await load(second)).image.brokers == {}
    assert await registration.register(second, BrokerId(1), RECORD) > epoch


@on_store
async def test_an_id_in_use_is_refused(store: EmbeddedStore) -> None:
    one, two = store.connect(), store.connect()
    await registration.prepare_store(one)
    await registration.register(one, BrokerId(1), RECORD)
    with pytest.raises(FatalError, match=r"broker\.id"):
        await registration.register(two, BrokerId(1), RECORD)
    await registration.unregister(one, BrokerId(1))
    await registration.unregister(one, BrokerId(1))
    await registration.register(two, BrokerId(1), RECORD)


@on_store
async def test_features_are_finalised_only_where_we_came_first(store: EmbeddedStore) -> None:
    session = store.connect()
    ours = await registration.finalized_features(session, LEVELS, initialised_here=True)
    assert (ours.enabled, ours.levels) == (True, {"group.version": 1})
    # What is there stays, whoever asks.
    assert await registration.finalized_features(session, FeaturesRecord(True, {}), initialised_here=False) == ours


@on_store
async def test_older_peers_get_features_as_they_read_them(store: EmbeddedStore) -> None:
    session = store.connect()
    await registration.cluster_id(session, initial=LEVELS._replace(version=1))
    expected = b'{"features":{"group.version":{"min_version_level":1,"max_version_level":1}},"version":1,"status":1}'
    assert (await session.get(paths.FEATURE)).data == expected


@on_store
async def test_elsewhere_features_are_as_kafka_writes_them(store: EmbeddedStore) -> None:
    session = store.connect()
    await registration.finalized_features(session, LEVELS, initialised_here=False)
    assert (await session.get(paths.FEATURE)).data == b'{"features":{},"version":2,"status":1}'
