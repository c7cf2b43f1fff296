from __future__ import annotations

import asyncio
from typing import Any

from braidlog.broker.handlers.records.log_bounds import TO_HIGH_WATERMARK, DeleteRecordsHandler
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_cluster, allow_topic
from support.log_kit import as_slice, batch


async def produce(broker: AskedBroker, topic: str, count: int) -> None:
    for _ in range(count):
        data = [PartitionProduceData(index=0, records=as_slice(batch(b"v")))]
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
        )
        (answered,) = (await broker.ask(request, 9)).responses
        assert answered.partition_responses[0].error_code == 0


def deletion(topic: str, offset: int, timeout_ms: int = 30_000) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = [DeleteRecordsTopic(name=topic, partitions=[partition])]
    return DeleteRecordsRequest(topics=wanted, timeout_ms=timeout_ms)


async def deleted(broker: AskedBroker, topic: str, offset: int, timeout_ms: int = 30_000) -> tuple[int, int]:
    (result,) = (await broker.ask(deletion(topic, offset, timeout_ms), 2)).topics
    return result.partitions[0].error_code, result.partitions[0].low_watermark


@on_broker
async def test_the_start_moves_forward_only_and_to_the_high_watermark_at_most(broker: AskedBroker) -> None:
    await broker.create("t")
    await produce(broker, "t", 5)
    assert await deleted(broker, "t", 2) == (0, 2)
    assert await deleted(broker, "t", 1) == (0, 2)
    assert await deleted(broker, "t", 6) == (OffsetOutOfRangeError.code, -1)
    assert await deleted(broker, "t", -5) == (OffsetOutOfRangeError.code, -1)
    assert await deleted(broker, "t", TO_HIGH_WATERMARK) == (0, 5)
    assert await deleted(broker, "gone", 0) == (UnknownTopicOrPartitionError.code, -1)


@on_broker
async def test_records_of_a_compacted_topic_stay(broker: AskedBroker) -> None:
    await broker.create("c", cleanup_policy="compact")
    assert await deleted(broker, "c", 0) == (PolicyViolationError.code, -1)


async def end_of(broker: AskedBroker, epoch: int, current: int = -1, topic: str = "t") -> Any:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    return (await broker.ask(request, 4)).topics[0].partitions[0]


@on_broker
async def test_where_a_leader_epoch_ended(broker: AskedBroker) -> None:
    await broker.create("t")
    await produce(broker, "t", 3)
    current = broker.parts.registry.require("t", 0).leader_epoch
    found = await end_of(broker, current, current)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, current, 3)
    assert (await end_of(broker, current + 5)).end_offset == -1
    assert (await end_of(broker, 0, current + 1)).error_code == UnknownLeaderEpochError.code
    assert (await end_of(broker, 0, topic="gone")).error_code == UnknownTopicOrPartitionError.code
    if current > 0:
        assert (await end_of(broker, 0, current - 1)).error_code == FencedLeaderEpochError.code


def test_a_failure_is_told_for_each_partition() -> None:
    answer = DeleteRecordsHandler.error_response(deletion("t", 1), 2, UnknownServerError())
    (result,) = answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (UnknownServerError.code, -1)


def led_with_a_follower(broker: AskedBroker) -> Partition:
    """Broker 2 is in sync, and alive unless the test says otherwise."""
    partition = broker.parts.registry.require("t", 0)
    me = partition.broker_id
    partition.context = ReplicationContext(is_live=lambda other: True)
    partition.update_leader_and_isr(me, partition.leader_epoch + 1, (me, 2), (me, 2))
    follow(partition, log_start=0)
    return partition


def follow(partition: Partition, log_start: int) -> None:
    replica = partition.remote_replica(2, partition.leader_epoch)
    partition.follower_fetched(
        replica, partition.require_log().log_end_offset, log_start, -1, partition.context.clock.monotonic()
    )


@on_broker
async def test_a_deletion_is_answered_when_the_other_replica_made_it(broker: AskedBroker) -> None:
    await broker.create("t")
    await produce(broker, "t", 5)
    partition = led_with_a_follower(broker)
    asked = asyncio.ensure_future(deleted(broker, "t", 3))
    while partition.require_log().log_start_offset < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    follow(partition, log_start=2)
    await asyncio.sleep(0.01)
    assert not asked.done()
    follow(partition, log_start=3)
    assert await asked == (0, 3)


@on_broker
async def test_a_deletion_that_a_replica_does_not_make_in_time(broker: AskedBroker) -> None:
    await broker.create("t")
    await produce(broker, "t", 5)
    partition = led_with_a_follower(broker)
    follow(partition, log_start=1)
    assert await deleted(broker, "t", 3, timeout_ms=1) == (RequestTimedOutError.code, 1)
    # One that is dead is not waited for.
    partition.context.is_live = lambda other: False
    assert await deleted(broker, "t", 4) == (0, 4)


@on_broker
async def test_a_deletion_ends_with_the_leadership(broker: AskedBroker) -> None:
    await broker.create("t")
    await produce(broker, "t", 5)
    partition = led_with_a_follower(broker)
    asked = asyncio.ensure_future(deleted(broker, "t", 3))
    while partition.require_log().log_start_offset < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    partition.update_leader_and_isr(2, partition.leader_epoch + 1, (2,), partition.replicas)
    assert await asked == (NotLeaderOrFollowerError.code, -1)


@on_broker
async def test_only_records_of_topics_that_may_be_deleted_are(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    for name in ("kept", "mine"):
        await restricted.admin.create(name)
        await produce(restricted.admin, name, 2)
    restricted.rules(allow_topic("mine", AclOperation.DELETE))
    partitions = [{"partition_index": 0, "offset": TO_HIGH_WATERMARK}]
    topics = [{"name": name, "partitions": partitions} for name in ("kept", "mine")]
    answer = await restricted.ask("DeleteRecords", 2, topics=topics, timeout_ms=1000)
    assert answer == "[kept [0 TOPIC_AUTHORIZATION_FAILED], mine [0]]"
    starts = [broker.parts.registry.require(name, 0).require_log().log_start_offset for name in ("kept", "mine")]
    assert starts == [0, 2]


@on_broker
async def test_a_follower_need_not_describe_topics_to_learn_of_epochs(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.create("one")
    await restricted.admin.create("two")
    topics = [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]} for name in ("one", "two")]
    restricted.rules(allow_topic("two", AclOperation.DESCRIBE))
    answer = await restricted.ask("OffsetForLeaderEpoch", 4, replica_id=2, topics=topics)
    assert answer == "[one [0 TOPIC_AUTHORIZATION_FAILED], two [0]]"
    restricted.rules(allow_cluster(AclOperation.CLUSTER_ACTION))
    assert await restricted.ask("OffsetForLeaderEpoch", 4, replica_id=2, topics=topics) == "[one [0], two [0]]"
