from __future__ import annotations

import asyncio

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.loading import InSyncReplica, load, load_brokers, load_configs, load_in_sync, load_topics
from braidlog.cluster.records import BrokerRecord, PartitionStateRecord, TopicRecord
from braidlog.cluster.registration import prepare_store, register
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import EventKind, WatchEvent, ensure_path
from braidlog.core.clock import ManualClock
from braidlog.core.types import NO_BROKER, BrokerId, Endpoint, TopicPartition
from support.memory_journal import MemoryJournalFiles

RECORD = BrokerRecord((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, "rack")
ID = bytes(range(16))


async def prepared() -> EmbeddedSession:
    session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
    await prepare_store(session)
    return session


async def write_topic(
    session: EmbeddedSession, name: str, topic_id: bytes, *states: PartitionStateRecord, moving: bool = False
) -> None:
    record = TopicRecord(topic_id, ((1, 2),) * max(len(states), 1), adding={0: (2,)} if moving else {})
    await session.create(paths.topic(name), records.encode_topic(record))
    for index, state in enumerate(states):
        await ensure_path(session, paths.partition_state(name, index))
        await session.set(paths.partition_state(name, index), records.encode_partition_state(state))


async def test_an_empty_store_is_an_empty_image() -> None:
    session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
    await ensure_path(session, paths.BROKER_IDS)
    loaded = await load(session)
    assert loaded.image.controller_id == NO_BROKER
    assert loaded.image.cluster_id == ""
    assert loaded.image.partition_count == 0
    assert loaded.deleting == ()


async def test_a_partition_has_what_its_state_says_and_the_version_as_its_epoch() -> None:
    session = await prepared()
    await write_topic(session, "t", ID, PartitionStateRecord(2, 5, (2,), 3))
    (topic,) = await load_topics(session, ["t"])
    (partition,) = topic.partitions
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 5, (2,))
    assert (partition.replicas, partition.controller_epoch, partition.partition_epoch) == ((1, 2), 3, 1)


async def test_partitions_whose_leader_registered_after_their_state_was_written_are_told_apart() -> None:
    session = await prepared()
    await register(session, BrokerId(1), RECORD)
    led_by_one, led_by_two = PartitionStateRecord(1, 5, (1, 2), 3), PartitionStateRecord(2, 5, (1, 2), 3)
    await write_topic(session, "t", ID, led_by_one, led_by_two, PartitionStateRecord(NO_BROKER, 5, (2,), 3))
    await register(session, BrokerId(2), RECORD)
    assert (await load(session)).restarted == {TopicPartition("t", 1)}
    # Also of a topic that is served until a reassignment is done, and deleted then.
    await session.create(f"{paths.DELETE_TOPICS}/t")
    assert (await load(session)).restarted == {TopicPartition("t", 1)}
    await session.set(paths.partition_state("t", 1), records.encode_partition_state(led_by_two))
    assert (await load(session)).restarted == frozenset()


async def test_a_partition_without_state_has_no_leader() -> None:
    session = await prepared()
    await write_topic(session, "t", ID)
    (topic,) = await load_topics(session, ["t", "gone"])
    assert topic.partitions[0].leader == NO_BROKER
    assert topic.partitions[0].partition_epoch == -1
    assert topic.partitions[0].replicas == (1, 2)


async def test_equal_partitions_are_kept_once() -> None:
    session = await prepared()
    await write_topic(session, "t", ID, *[PartitionStateRecord(1, 0, (1, 2), 1)] * 3)
    (topic,) = await load_topics(session, ["t"])
    assert topic.partitions[0] is topic.partitions[1] is topic.partitions[2]


async def test_topics_on_their_way_out_are_not_in_the_image() -> None:
    session = await prepared()
    await write_topic(session, "stays.here", ID, PartitionStateRecord(1, 0, (1,), 1))
    await write_topic(session, "goes", bytes(16), PartitionStateRecord(1, 0, (1,), 1))
    await session.create(paths.deleted_topic("goes"))
    await session.create(paths.config("topics/goes"), records.encode_config({"retention.ms": "1"}))
    loaded = await load(session)
    assert list(loaded.image.topics) == ["stays.here"]
    assert [topic.name for topic in loaded.deleting] == ["goes"]
    assert loaded.image.partition_count == 1
    assert "topics/goes" not in loaded.image.configs
    assert loaded.image.topic_names[ID] == "stays.here"
    assert loaded.image.metric_names["stays_here"] == "stays.here"


async def test_only_entities_with_overrides_have_an_entry() -> None:
    session = await prepared()
    await session.create(paths.config("topics/a"), records.encode_config({}))
    await session.create(paths.config("topics/b"), records.encode_config({"retention.ms": "5"}))
    await session.create(paths.config("brokers/1"), records.encode_config({"log.retention.ms": "6"}))
    assert await load_configs(session, frozenset(["a"])) == {
        "topics/b": {"retention.ms": "5"},
        "brokers/1": {"log.retention.ms": "6"},
    }
    assert await load_configs(session, frozenset(["b"])) == {"brokers/1": {"log.retention.ms": "6"}}


async def test_users_clients_and_ips_are_entities_and_so_are_the_clients_of_users() -> None:
    session = await prepared()
    rates = {
        "users/u": "1",
        "users/<default>": "2",
        "users/u/clients/app": "3",
        "users/<default>/clients/<default>": "4",
        "clients/app": "5",
        "ips/192.0.2.7": "6",
    }
    # A user with nothing but a client's quota has a node without overrides.
    await session.create(paths.config("users/plain"), b"")
    rates["users/plain/clients/app"] = "7"
    for entity, rate in rates.items():
        await ensure_path(session, paths.config(entity))
        await session.set(paths.config(entity), records.encode_config({"consumer_byte_rate": rate}))
    found = await load_configs(session, frozenset())
    assert found == {entity: {"consumer_byte_rate": rate} for entity, rate in rates.items()}


async def test_brokers_have_the_zxid_of_their_registration_and_a_watch_hears_of_the_next() -> None:
    session = await prepared()
    heard: list[WatchEvent] = []
    epoch = await register(session, BrokerId(2), RECORD)
    brokers = await load_brokers(session, heard.append)
    assert list(brokers) == [2]
    assert brokers[BrokerId(2)].epoch == epoch
    assert brokers[BrokerId(2)].rack == "rack"
    await register(session, BrokerId(1), RECORD)
    assert list(await load_brokers(session)) == [1, 2]
    assert heard == [WatchEvent(EventKind.CHILDREN_CHANGED, paths.BROKER_IDS)]


async def test_others_run_while_many_topics_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braidlog.core.time_slice.SLICE_S", 0.0)
    session = await prepared()
    for number in range(20):
        await write_topic(session, f"t{number}", ID, PartitionStateRecord(1, 0, (1,), 1))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    names = [f"t{number}" for number in range(20)]
    assert [topic.name for topic in await load_topics(session, names)] == names
    running.cancel()
    assert turns >= 20


async def test_replicas_that_a_broker_is_counted_on_for() -> None:
    session = await prepared()
    alone, both = PartitionStateRecord(1, 5, (1,), 3), PartitionStateRecord(2, 5, (1, 2), 3)
    await write_topic(session, "t", ID, alone, both, PartitionStateRecord(2, 5, (2,), 3))
    await session.create(paths.topic("single"), records.encode_topic(TopicRecord(bytes(16), ((1,),))))
    await ensure_path(session, paths.partition_state("single", 0))
    await session.set(paths.partition_state("single", 0), records.encode_partition_state(alone))
    await write_topic(session, "going", bytes(15) + b"2", both)
    await session.create(f"{paths.DELETE_TOPICS}/going")
    # Served until its reassignment is done, and deleted then.
    await write_topic(session, "moving", bytes(15) + b"3", both, moving=True)
    await session.create(f"{paths.DELETE_TOPICS}/moving")
    assert sorted(await load_in_sync(session, BrokerId(1))) == [
        InSyncReplica(TopicPartition("moving", 0), bytes(15) + b"3", (BrokerId(1), BrokerId(2))),
        InSyncReplica(TopicPartition("t", 0), ID, (BrokerId(1),)),
        InSyncReplica(TopicPartition("t", 1), ID, (BrokerId(1), BrokerId(2))),
    ]
