from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from braidlog.broker.coordinators.internal_topics import InternalTopics
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta
from braidlog.config.broker import BrokerSettings
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    ProtocolError,
    TopicAlreadyExistsError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId
from support.controller_harness import partition, topic


class Controller:
    def __init__(self, brokers: int = 1) -> None:
        known = {BrokerId(each): BrokerInfo(BrokerId(each), each, ()) for each in range(brokers)}
        self.image = ClusterImage().apply(ImageDelta(brokers=known))
        self.created: list[NewTopic] = []
        self.error: ProtocolError | None = None
        self.go = asyncio.Event()

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[NewTopicResult]:
        self.created += wanted
        await self.go.wait()
        return [NewTopicResult(each.name, self.error) for each in wanted]


def topics(controller: Any, **settings: str) -> InternalTopics:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return InternalTopics(controller, DynamicBrokerSettings(BrokerSettings(given)), Tasks("test"))


async def test_topics_are_made_as_the_settings_say_with_no_more_copies_than_brokers() -> None:
    settings = {"offsets_topic_num_partitions": "7", "offsets_topic_replication_factor": "3"}
    wanted = topics(Controller(2), **settings).wanted(OFFSETS_TOPIC)
    assert (wanted.partitions, wanted.replication_factor) == (7, 2)
    assert wanted.configs["cleanup.policy"] == "compact"
    log = topics(Controller(1), transaction_state_log_min_isr="2").wanted(TRANSACTIONS_TOPIC)
    assert log.configs["min.insync.replicas"] == "1"
    assert log.configs["unclean.leader.election.enable"] == "false"
    assert topics(Controller()).wanted("orders") == NewTopic("orders")


async def test_the_number_of_partitions_before_and_after_the_topic_is_there() -> None:
    controller = Controller()
    internal = topics(controller, offsets_topic_num_partitions="7")
    assert internal.partition_count(OFFSETS_TOPIC) == 7
    made = topic(OFFSETS_TOPIC, *[partition(0, (0,), (0,))] * 3)
    controller.image = controller.image.apply(ImageDelta(topics_created=(made,)))
    assert internal.partition_count(OFFSETS_TOPIC) == 3
    await internal.ensure(OFFSETS_TOPIC)
    assert controller.created == []


async def test_callers_at_the_same_time_share_one_creation_and_one_may_go_away() -> None:
    controller = Controller()
    internal = topics(controller)
    callers = [asyncio.ensure_future(internal.ensure(OFFSETS_TOPIC)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    callers[0].cancel()
    controller.go.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[1:] == [None, None]
    assert [each.name for each in controller.created] == [OFFSETS_TOPIC]


async def test_another_broker_may_have_been_quicker() -> None:
    controller = Controller()
    controller.go.set()
    controller.error = TopicAlreadyExistsError()
    await topics(controller).ensure(OFFSETS_TOPIC)
    controller.error = InvalidReplicationFactorError("too many")
    with pytest.raises(CoordinatorNotAvailableError, match=r"cannot be created.*too many"):
        await topics(controller).ensure(OFFSETS_TOPIC)
