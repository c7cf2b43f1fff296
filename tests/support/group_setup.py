"""Groups and transactions to look at: members by confluent-kafka, or joined by hand where no client can."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection, ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.lookup_strategies import CoordinatorStrategy
from braidlog.client.broker_errors import check
from braidlog.client.requests.find_coordinator import GROUP
from braidlog.core.protocol_errors import MemberIdRequiredError, UnsupportedVersionError
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.confluent import DEADLINE_S, producer
from support.eventually import eventually

_COMING_UP = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
JOIN_GROUP = 11
SYNC_GROUP = 14
CONSUMER_GROUP_HEARTBEAT = 68

Answered = TypeVar("Answered", JoinGroupResponse, SyncGroupResponse, ConsumerGroupHeartbeatResponse)


def fill(bootstrap: str, topic: str, counts: dict[int, int]) -> None:
    """So many records in each partition."""
    sender = producer(bootstrap)
    for partition, count in counts.items():
        for number in range(count):
            sender.produce(topic, value=b"%d" % number, partition=partition)
    assert sender.flush(DEADLINE_S) == 0


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Commit as a consumer that is no member of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, partition, offset, metadata) for partition, offset in offsets.items()]

    def committed() -> bool:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as problem:
            # The first use of a coordinator finds it still coming up, which librdkafka does not wait for.
            if problem.args[0].code() not in _COMING_UP:
                raise
            return False
        return True

    eventually(committed)
    consumer.close()


@contextmanager
def members(bootstrap: str, group: str, topic: str, client_ids: list[str], **settings: Any) -> Iterator[list[Consumer]]:
    """Consumers that subscribed, once each of them has partitions."""
    with ExitStack() as leaving:
        joined = []
        for client_id in client_ids:
            consumer = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": group,
                    "client.id": client_id,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    **{key.replace("_", "."): value for key, value in settings.items()},
                }
            )
            leaving.callback(consumer.close)
            consumer.subscribe([topic])
            joined.append(consumer)

        def all_assigned() -> bool:
            for consumer in joined:
                consumer.poll(0.05)
            return all(consumer.assignment() for consumer in joined)

        eventually(all_assigned, DEADLINE_S)
        yield joined


@contextmanager
def worker(bootstrap: str, group: str) -> Iterator[str]:
    """A member of a group that shares out something else than partitions; its member id."""
    with ClusterConnection(bootstrap) as cluster:

        async def join(node: BrokerConnection, member_id: str) -> JoinGroupResponse:
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="connect",
                protocols=[JoinGroupRequestProtocol(name="sessioned", metadata=b"\1")],
            )
            return await node.call(JOIN_GROUP, request, JoinGroupResponse, at_most=5)

        async def begin(node: BrokerConnection) -> JoinGroupResponse:
            first = await join(node, "")
            return await join(node, first.member_id) if first.error_code == MemberIdRequiredError.code else first

        answer = _settled(cluster, group, begin)
        assert answer.error_code == 0
        given = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"\0\7connectors")
        sync = SyncGroupRequest(
            group_id=group, generation_id=answer.generation_id, member_id=answer.member_id, assignments=[given]
        )

        async def settle(node: BrokerConnection) -> SyncGroupResponse:
            return await node.call(SYNC_GROUP, sync, SyncGroupResponse, at_most=3)

        assert _settled(cluster, group, settle).error_code == 0
        yield answer.member_id


def _settled(
    cluster: ClusterConnection, group: str, question: Callable[[BrokerConnection], Coroutine[Any, Any, Answered]]
) -> Answered:
    """The first answer that is not put off: the coordinator may have to come up."""

    async def ask(node: BrokerConnection) -> Answered:
        answer = await question(node)
        check(answer.error_code, f"group {group}")
        return answer

    return AdminApiDriver(cluster).ask_one(CoordinatorStrategy(GROUP), ask, group)


@contextmanager
def newer_member(bootstrap: str, group: str, topic: str) -> Iterator[str]:
    """A member by the consumer protocol, once it has partitions; its member id. LookupError where it is not offered."""
    with ClusterConnection(bootstrap) as cluster:
        version = cluster.run(_heartbeat_version)
        if version is None:
            raise LookupError("the broker does not offer the consumer group protocol")
        own_id = str(uuid.uuid4()) if version >= 1 else ""

        def beat(
            epoch: int, member_id: str, owned: list[RequestTopicPartitions] | None
        ) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group, member_id=member_id, member_epoch=epoch, topic_partitions=owned
            )
            if epoch == 0:
                request.rebalance_timeout_ms = 60_000
                request.subscribed_topic_names = [topic]

            async def send(node: BrokerConnection) -> ConsumerGroupHeartbeatResponse:
                return await node.call(CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)

            return _settled(cluster, group, send)

        try:
            answer = beat(0, own_id, [])
        except UnsupportedVersionError as problem:
            raise LookupError("the broker does not serve the consumer group protocol") from problem
        assert (answer.error_code, answer.error_message) == (0, None)
        member_id = answer.member_id or own_id
        assigned = answer.assignment
        while assigned is None or not assigned.topic_partitions:
            answer = beat(answer.member_epoch, member_id, None)
            assert answer.error_code == 0, answer.error_message
            assigned = answer.assignment
        owned = [
            RequestTopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in assigned.topic_partitions
        ]
        assert beat(answer.member_epoch, member_id, owned).error_code == 0
        yield member_id
        beat(-1, member_id, None)


def open_transaction(bootstrap: str, transactional_id: str, topic: str, **settings: Any) -> Producer:
    """A producer whose transaction has one record in partition 0."""
    sender = producer(bootstrap, transactional_id=transactional_id, **settings)
    sender.init_transactions(DEADLINE_S)
    sender.begin_transaction()
    sender.produce(topic, value=b"uncertain", partition=0)
    assert sender.flush(DEADLINE_S) == 0
    return sender


async def _heartbeat_version(call: ClusterCall) -> int | None:
    node = await call.any()
    return node.version_for(CONSUMER_GROUP_HEARTBEAT) if node.offers(CONSUMER_GROUP_HEARTBEAT) else None
