"""The control requests that a plan asks for, as each broker gets them.

Values that several brokers get are one object: a channel that encodes may do it once for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from braidlog.cluster.control_requests import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlRequest,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import BrokerInfo, PartitionInfo, TopicImage
from braidlog.controller.plan import ControllerContext, RequestBatch, RoleChange
from braidlog.core.types import NO_EPOCH, BrokerId, TopicPartition

# How many partitions one request names; an UpdateMetadata may name more, of a single topic.
_PARTITIONS_IN_A_REQUEST: Final = 1_000


def parts(batch: RequestBatch) -> Iterator[RequestBatch]:
    """A large batch as several, so that no broker spends long on one request.

    Each partition still has its LeaderAndIsr before its UpdateMetadata, and that before its StopReplica. One
    UpdateMetadata has all that the batch says of a topic: nobody sees half of it.
    """
    most = _PARTITIONS_IN_A_REQUEST
    if len(batch.roles) + len(batch.metadata) + len(batch.stops) <= most:
        yield batch
        return
    nothing = RequestBatch(metadata_to=batch.metadata_to)
    if batch.brokers_changed:
        yield nothing._replace(brokers_changed=True)
    roles: list[RoleChange] = []
    metadata: list[TopicPartition] = []
    for its_roles, its_metadata in _by_topic(batch):
        if roles or metadata:
            size = len(roles) + len(metadata) + len(its_roles) + len(its_metadata)
            if size > most:
                yield nothing._replace(roles=roles, metadata=metadata)
                roles, metadata = [], []
        if len(its_roles) > most:
            for first in range(0, len(its_roles), most):
                yield RequestBatch(roles=its_roles[first : first + most], metadata_to=())
            metadata += [role.where for role in its_roles]
        else:
            roles += its_roles
        metadata += its_metadata
    if roles or metadata:
        yield nothing._replace(roles=roles, metadata=metadata)
    for delete in (False, True):
        stops = [stop for stop in batch.stops if stop.delete is delete]
        for first in range(0, len(stops), most):
            yield RequestBatch(stops=stops[first : first + most])


def _by_topic(batch: RequestBatch) -> Iterable[tuple[list[RoleChange], list[TopicPartition]]]:
    topics: dict[str, tuple[list[RoleChange], list[TopicPartition]]] = {}
    for role in batch.roles:
        topics.setdefault(role.where.topic, ([], []))[0].append(role)
    for where in batch.metadata:
        topics.setdefault(where.topic, ([], []))[1].append(where)
    return topics.values()


def requests_of(
    context: ControllerContext, controller_id: BrokerId, batch: RequestBatch
) -> list[tuple[BrokerId, ControlRequest]]:
    """In the order in which each broker gets them. `context` is what the batch's plan leaves."""
    requests: list[tuple[BrokerId, ControlRequest]] = []
    requests += _leader_and_isr(context, controller_id, batch)
    requests += _update_metadata(context, controller_id, batch)
    requests += _stop_replica(context, controller_id, batch)
    return requests


def _leader_and_isr(
    context: ControllerContext, controller_id: BrokerId, batch: RequestBatch
) -> Iterable[tuple[BrokerId, LeaderAndIsr]]:
    image = context.image
    partitions: dict[BrokerId, list[LeaderAndIsrPartition]] = {}
    for role in batch.roles:
        topic = image.topic(role.where.topic)
        if topic is None or not role.brokers:
            continue
        index = role.where.partition
        old = LeaderAndIsrPartition(topic.name, topic.topic_id, index, topic.partitions[index])
        new = old._replace(is_new=True) if role.new else old
        for broker in role.brokers:
            partitions.setdefault(broker, []).append(new if broker in role.new else old)
    for broker, roles in partitions.items():
        info = image.brokers.get(broker)
        if info is not None:
            leaders: dict[BrokerId, BrokerInfo] = {}
            for each in roles:
                leader = each.info.leader
                if leader in image.brokers:
                    leaders[leader] = image.brokers[leader]
            yield broker, LeaderAndIsr(controller_id, context.controller_epoch, info.epoch, tuple(roles), leaders)


def _update_metadata(
    context: ControllerContext, controller_id: BrokerId, batch: RequestBatch
) -> Iterable[tuple[BrokerId, UpdateMetadata]]:
    if batch.metadata_to == ():
        return
    named = dict.fromkeys((*(role.where for role in batch.roles), *batch.metadata))
    partitions = tuple(_announced(context, named))
    if not partitions and not batch.brokers_changed:
        return
    brokers = context.image.brokers
    for broker in brokers if batch.metadata_to is None else batch.metadata_to:
        info = brokers.get(broker)
        if info is not None:
            yield broker, UpdateMetadata(controller_id, context.controller_epoch, info.epoch, brokers, partitions)


def _announced(context: ControllerContext, named: Iterable[TopicPartition]) -> Iterable[MetadataPartition]:
    live = frozenset(context.image.brokers)
    for where in named:
        topic = topic_of(context, where)
        if topic is None or where.partition >= len(topic.partitions):
            continue
        info = topic.partitions[where.partition]
        if info.partition_epoch == -1:
            continue
        if context.offline_dirs or not live.issuperset(info.replicas):
            info = info._replace(offline=_offline(context, info, where))
        deletion = context.deletions.get(where.topic)
        if deletion is not None and deletion.begun:
            info = info._replace(leader=LEADER_DURING_DELETE)
        yield MetadataPartition(topic.name, topic.topic_id, where.partition, info)


def topic_of(context: ControllerContext, where: TopicPartition) -> TopicImage | None:
    deletion = context.deletions.get(where.topic)
    return deletion.topic if deletion is not None and deletion.begun else context.image.topic(where.topic)


def _offline(context: ControllerContext, info: PartitionInfo, where: TopicPartition) -> tuple[BrokerId, ...]:
    return tuple(each for each in info.replicas if not context.online(each, where))


def _stop_replica(
    context: ControllerContext, controller_id: BrokerId, batch: RequestBatch
) -> Iterable[tuple[BrokerId, StopReplica]]:
    """First all that only stop, then all that delete."""
    for delete in (False, True):
        partitions: dict[BrokerId, list[StopReplicaPartition]] = {}
        for stop in batch.stops:
            if stop.delete == delete:
                topic, index = stop.where
                asked = StopReplicaPartition(topic, index, _stop_epoch(context, stop.where), delete)
                partitions.setdefault(stop.broker, []).append(asked)
        for broker, asked_of in partitions.items():
            info = context.image.brokers.get(broker)
            if info is not None:
                yield broker, StopReplica(controller_id, context.controller_epoch, info.epoch, tuple(asked_of))


def _stop_epoch(context: ControllerContext, where: TopicPartition) -> int:
    deletion = context.deletions.get(where.topic)
    if deletion is not None and deletion.begun:
        return EPOCH_DURING_DELETE
    info = context.image.partition(where)
    return NO_EPOCH if info is None else info.leader_epoch
