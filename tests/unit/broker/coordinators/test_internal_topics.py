from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from braidlog.broker.coordinators.internal_topics import InternalTopics
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.replica_limit import MOST_REPLICAS
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta
from braidlog.config.broker import BrokerSettings
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.controller.requests import NewTopic
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    ProtocolError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId
from support.controller_harness import partition, topic


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


def topics(cluster: Any, **settings: str) -> InternalTopics:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return InternalTopics(cluster, cluster, DynamicBrokerSettings(BrokerSettings(given)), Tasks("test"))


async def test_topics_are_made_as_the_settings_say_with_no_more_replicas_than_can_be_had() -> None:
    settings = {"offsets_topic_num_partitions": "7", "offsets_topic_replication_factor": "3"}
    wanted = topics(Cluster(2), **settings).wanted(OFFSETS_TOPIC)
    assert (wanted.partitions, wanted.replication_factor) == (7, MOST_REPLICAS)
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
