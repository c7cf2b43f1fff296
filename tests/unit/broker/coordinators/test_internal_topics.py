from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from braidlog.broker.coordinators.internal_topics import InternalTopics
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.cluster import paths
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta
from braidlog.cluster.records import TopicRecord, encode_topic
from braidlog.cluster.registration import prepare_store
from braidlog.config.broker import BrokerSettings
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.controller.requests import NewTopic
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    ProtocolError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId
from support.controller_harness import partition, topic
from support.memory_journal import MemoryJournalFiles


class Cluster:
    """The metadata cache, and the creation of topics."""

    def __init__(self, brokers: int = 1) -> None:
        known = {BrokerId(each): BrokerInfo(BrokerId(each), each, ()) for each in range(brokers)}
        self.image = ClusterImage().apply(ImageDelta(brokers=known))
        self.created: list[NewTopic] = []
        self.error: ProtocolError | None = None
        self.go = asyncio.Event()

    async def create(self, wanted: Sequence[NewTopic]) -> dict[str, ProtocolError]:
        self.created += wanted
        await self.go.wait()
        return {} if self.error is None else {each.name: self.error for each in wanted}


def topics(cluster: Any, is_cluster: bool = False, **settings: str) -> InternalTopics:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return InternalTopics(cluster, cluster, DynamicBrokerSettings(BrokerSettings(given)), Tasks("test"), is_cluster)


async def test_topics_are_made_as_the_settings_say_with_no_more_replicas_than_can_be_had() -> None:
    settings = {"offsets_topic_num_partitions": "7", "offsets_topic_replication_factor": "3"}
    wanted = topics(Cluster(2), **settings).wanted(OFFSETS_TOPIC)
    assert (wanted.partitions, wanted.replication_factor) == (7, 2)
    assert wanted.configs["cleanup.policy"] == "compact"
    log = topics(Cluster(1), transaction_state_log_min_isr="2").wanted(TRANSACTIONS_TOPIC)
    assert log.configs["min.insync.replicas"] == "1"
    assert log.configs["unclean.leader.election.enable"] == "false"
    assert topics(Cluster(), default_replication_factor="2").wanted("orders") == NewTopic(
        "orders", replication_factor=2
    )


async def test_the_number_of_partitions_before_and_after_the_topic_is_there() -> None:
    cluster = Cluster()
    internal = topics(cluster, offsets_topic_num_partitions="7")
    assert internal.partition_count(OFFSETS_TOPIC) == 7
    made = topic(OFFSETS_TOPIC, *[partition(0, (0,), (0,))] * 3)
    cluster.image = cluster.image.apply(ImageDelta(topics_created=(made,)))
    assert internal.partition_count(OFFSETS_TOPIC) == 3
    await internal.ensure(OFFSETS_TOPIC)
    assert cluster.created == []


async def test_callers_at_the_same_time_share_one_creation_and_one_may_go_away() -> None:
    cluster = Cluster()
    internal = topics(cluster)
    callers = [asyncio.ensure_future(internal.ensure(OFFSETS_TOPIC)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    callers[0].cancel()
    cluster.go.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [None, None]
    assert [each.name for each in cluster.created] == [OFFSETS_TOPIC]


async def test_what_cannot_be_created_now_is_asked_for_again() -> None:
    cluster = Cluster()
    cluster.go.set()
    cluster.error = InvalidReplicationFactorError("too many")
    with pytest.raises(CoordinatorNotAvailableError, match=r"cannot be created.*too many"):
        await topics(cluster).ensure(OFFSETS_TOPIC)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (OFFSETS_TOPIC, "offsets_topic_replication_factor"),
        (TRANSACTIONS_TOPIC, "transaction_state_log_replication_factor"),
    ],
)
async def test_in_a_cluster_a_topic_waits_for_as_many_brokers_as_its_factor(name: str, key: str) -> None:
    cluster = Cluster(2)
    cluster.go.set()
    settings = {key: "3"}
    internal = topics(cluster, is_cluster=True, **settings)
    with pytest.raises(CoordinatorNotAvailableError, match=r"is 3 and 2 brokers are alive; start more"):
        await internal.ensure(name)
    assert cluster.created == []
    cluster.image = Cluster(3).image
    await internal.ensure(name)
    assert [each.name for each in cluster.created] == [name]


async def test_that_brokers_are_missing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    internal = topics(Cluster(1), is_cluster=True)
    for _ in range(5):
        with pytest.raises(CoordinatorNotAvailableError):
            await internal.ensure(OFFSETS_TOPIC)
    assert len(caplog.messages) == 1


async def test_a_lone_broker_waits_for_nobody() -> None:
    cluster = Cluster(1)
    cluster.go.set()
    await topics(cluster).ensure(OFFSETS_TOPIC)
    assert [each.name for each in cluster.created] == [OFFSETS_TOPIC]


async def test_a_part_of_a_topic_is_not_taken_for_all_of_it() -> None:
    """A broker that starts may be told of some partitions before the others."""
    session = EmbeddedStore.open(MemoryJournalFiles(), ManualClock()).connect()
    await prepare_store(session)
    part = topic(OFFSETS_TOPIC, partition(0, (0,), (0,)))._replace(topic_id=b"one of 16 bytes!")
    record = TopicRecord(part.topic_id, ((0,),) * 3)
    await session.create(paths.topic(OFFSETS_TOPIC), encode_topic(record))
    cluster = Cluster()
    internal = topics(cluster)
    await internal.read_partition_counts(session)
    cluster.image = cluster.image.apply(ImageDelta(topics_created=(part,)))
    assert internal.partition_count(OFFSETS_TOPIC) == 3
    # Another topic of that name has what it has.
    other = part._replace(topic_id=b"another topic id")
    cluster.image = Cluster().image.apply(ImageDelta(topics_created=(other,)))
    assert internal.partition_count(OFFSETS_TOPIC) == 1
