"""Changes of topics against a quota, on a whole broker in virtual time (KIP-599)."""

from __future__ import annotations

import asyncio

from braidlog.core.protocol_errors import ThrottlingQuotaExceededError
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from support.asked_broker import AskedBroker, on_broker, on_broker_with

REFUSED = ThrottlingQuotaExceededError.code


async def limit(broker: AskedBroker, per_second: float | None) -> None:
    entity = [RequestEntityData(entity_type="client-id", entity_name="test")]
    ops = [OpData(key="controller_mutation_rate", value=per_second or 0.0, remove=per_second is None)]
    answer = await broker.ask(AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=ops)]))
    assert [entry.error_code for entry in answer.entries] == [0]


def topics(*sizes: int, first: int = 0) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=f"t{number}", num_partitions=size, replication_factor=1)
            for number, size in enumerate(sizes, first)
        ],
        timeout_ms=1000,
    )


@on_broker
async def test_what_comes_after_the_burst_is_refused(broker: AskedBroker) -> None:
    await limit(broker, 1.0)
    answer = await broker.ask(topics(8, 8, 8), 7)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"t0": 0, "t1": 0, "t2": REFUSED}
    # 11 tokens, of which 16 were taken.
    assert 4_900 <= answer.throttle_time_ms <= 5_000
    again = await broker.ask(topics(1, first=2), 7)
    # The channel was held meanwhile.
    assert [topic.error_code for topic in again.topics] == [0]
    assert again.throttle_time_ms == 0


@on_broker
async def test_what_would_fail_anyway_takes_nothing(broker: AskedBroker) -> None:
    await limit(broker, 1.0)
    wrong = CreateTopicsRequest(
        topics=[CreatableTopic(name="bad name", num_partitions=50, replication_factor=1)], timeout_ms=1000
    )
    assert (await broker.ask(wrong, 7)).topics[0].error_code not in (0, REFUSED)
    checked = topics(50)
    checked.validate_only = True
    assert (await broker.ask(checked, 7)).topics[0].error_code == 0
    answer = await broker.ask(topics(50), 7)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)


@on_broker
async def test_older_versions_have_all_and_are_held(broker: AskedBroker) -> None:
    await limit(broker, 1.0)
    answer = await broker.ask(topics(8, 8, 8), 5)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0]
    assert 12_900 <= answer.throttle_time_ms <= 13_000
    began = asyncio.get_running_loop().time()
    await broker.ask(topics(1, first=3), 5)
    assert asyncio.get_running_loop().time() - began > 12


@on_broker
async def test_a_quota_that_was_removed_begins_anew(broker: AskedBroker) -> None:
    await limit(broker, 0.001)
    await broker.ask(topics(50), 7)
    await limit(broker, None)
    assert (await broker.ask(topics(50, first=1), 7)).topics[0].error_code == 0
    await limit(broker, 1.0)
    assert (await broker.ask(topics(1, 1, first=2), 7)).throttle_time_ms == 0


@on_broker
async def test_growing_and_deleting_take_as_much(broker: AskedBroker) -> None:
    await broker.create("grows", 2)
    await broker.create("goes", 30)
    await limit(broker, 1.0)
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="grows", count=20, assignments=None)], timeout_ms=1000
    )
    grown = await broker.ask(growth, 3)
    assert [result.error_code for result in grown.results] == [0]
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="goes")], timeout_ms=1000)
    refused = await broker.ask(deletion, 6)
    assert [(each.name, each.error_code) for each in refused.responses] == [("goes", REFUSED)]
    assert refused.throttle_time_ms > 6_000
    # Held until there are tokens again.
    assert [each.error_code for each in (await broker.ask(deletion, 6)).responses] == [0]
    growth.topics[0].count = 21
    assert [result.error_code for result in (await broker.ask(growth, 3)).results] == [REFUSED]


@on_broker_with({"auto.create.topics.enable": "true"})
async def test_topics_of_first_use_take_tokens_and_hold_nobody(broker: AskedBroker) -> None:
    await limit(broker, 1.0)
    wanted = [MetadataRequestTopic(name=f"used-{number}") for number in range(16)]
    for _ in range(2):
        # The second time they are there and take nothing.
        answer = await broker.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
        assert ({topic.error_code for topic in answer.topics}, answer.throttle_time_ms) == ({0}, 0)
    refused = await broker.ask(topics(1), 7)
    assert [topic.error_code for topic in refused.topics] == [REFUSED]
    # 11 tokens, of which 16 were taken; a few came back meanwhile.
    assert 4_000 <= refused.throttle_time_ms <= 5_000
