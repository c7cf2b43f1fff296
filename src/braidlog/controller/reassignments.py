"""Decides about moving replicas between brokers (KIP-455).

    start      replicas = target + the ones to remove; `adding` are the new ones, told to copy
    finish     once every target is in sync: replicas = target, a target leads, the rest deletes its logs
    cancel     replicas = the ones before the start

Every step raises the leader epoch. A target that is in sync already finishes at its start. The assignment is written
before the state at a start and after it at a finish, so that a controller that takes over in between can complete it.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster import paths
from braidlog.cluster.image import ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.store import SetData
from braidlog.controller.partitions import told, with_leader
from braidlog.controller.placement import check_replicas
from braidlog.controller.plan import (
    ControllerContext,
    Plan,
    RequestBatch,
    RoleChange,
    Step,
    Stop,
    topic_data,
    with_partitions,
    write_state,
)
from braidlog.controller.requests import OngoingReassignment, PartitionResult, Reassignment
from braidlog.core.protocol_errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import NO_BROKER, BrokerId, TopicPartition


def alter_reassignments(
    context: ControllerContext, requests: Sequence[Reassignment]
) -> tuple[Plan, list[PartitionResult]]:
    """A partition that is named twice gets what is asked last."""
    image = context.image
    changes: dict[str, dict[int, PartitionInfo]] = {}
    results: list[PartitionResult] = []
    for where, replicas in {request.partition: request.replicas for request in requests}.items():
        try:
            before = image.partition(where)
            if before is None or where.topic in context.deletions:
                raise UnknownTopicOrPartitionError(f"The partition {where} does not exist.")
            after = _cancelled(context, where, before) if replicas is None else _moved(context, where, before, replicas)
        except ProtocolError as error:
            results.append(PartitionResult(where, error))
            continue
        if after != before:
            changes.setdefault(where.topic, {})[where.partition] = after
        results.append(PartitionResult(where))
    return _plan(context, changes), results


def complete(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Plan:
    """Finish those of these moves whose targets are all in sync."""
    changes: dict[str, dict[int, PartitionInfo]] = {}
    for where in partitions:
        info = context.image.partition(where)
        if info is not None and is_complete(info):
            changes.setdefault(where.topic, {})[where.partition] = _finished(context, where, info, target_of(info))
    return _plan(context, changes)


def target_of(info: PartitionInfo) -> tuple[BrokerId, ...]:
    return tuple(each for each in info.replicas if each not in info.removing)


def is_complete(info: PartitionInfo) -> bool:
    return info.reassigning and all(each in info.isr for each in target_of(info))


def list_reassignments(image: ClusterImage, partitions: Sequence[TopicPartition] | None) -> list[OngoingReassignment]:
    """The moves under way, of all partitions or of these."""
    if partitions is None:
        named = (
            (TopicPartition(topic.name, index), info)
            for topic in image.topics.values()
            for index, info in enumerate(topic.partitions)
            if info.adding or info.removing
        )
        return [OngoingReassignment(where, info.replicas, info.adding, info.removing) for where, info in named]
    ongoing = []
    for where in dict.fromkeys(partitions):
        found = image.partition(where)
        if found is not None and found.reassigning:
            ongoing.append(OngoingReassignment(where, found.replicas, found.adding, found.removing))
    return ongoing


def _moved(
    context: ControllerContext, where: TopicPartition, before: PartitionInfo, replicas: Sequence[int]
) -> PartitionInfo:
    check_replicas(replicas, context.image.brokers, str(where))
    target = tuple(BrokerId(each) for each in replicas)
    origin = tuple(each for each in before.replicas if each not in before.adding)
    adding = tuple(each for each in target if each not in origin)
    removing = tuple(each for each in origin if each not in target)
    started = before._replace(replicas=target + removing, adding=adding, removing=removing)
    if started == before:
        return before
    if all(each in before.isr for each in target):
        return _finished(context, where, started, target)
    # Replicas that an earlier target was adding, and this one does not want, leave the ISR.
    isr = tuple(each for each in before.isr if each in started.replicas)
    leader = before.leader if before.leader in isr or before.leader == NO_BROKER else _leader(context, where, isr, isr)
    return started if before.partition_epoch == -1 else with_leader(context, started, leader, isr or before.isr)


def _finished(
    context: ControllerContext, where: TopicPartition, moving: PartitionInfo, target: tuple[BrokerId, ...]
) -> PartitionInfo:
    isr = tuple(each for each in moving.isr if each in target)
    settled = moving._replace(replicas=target, adding=(), removing=())
    live = context.online(moving.leader, where)
    leader = moving.leader if moving.leader in target and live else _leader(context, where, target, isr)
    return with_leader(context, settled, leader, isr)


def _leader(
    context: ControllerContext, where: TopicPartition, order: Sequence[BrokerId], isr: Sequence[BrokerId]
) -> BrokerId:
    return next((each for each in order if each in isr and context.online(each, where)), NO_BROKER)


def _cancelled(context: ControllerContext, where: TopicPartition, before: PartitionInfo) -> PartitionInfo:
    if not before.reassigning:
        raise NoReassignmentInProgressError(f"no reassignment of {where} is under way")
    origin = tuple(each for each in before.replicas if each not in before.adding)
    if not any(each in before.isr for each in origin):
        raise InvalidReplicaAssignmentError(
            f"none of the former replicas {list(origin)} of {where} is in sync any more: "
            "let the reassignment finish, or reassign to other brokers"
        )
    return _finished(context, where, before, origin)


def _plan(context: ControllerContext, changes: dict[str, dict[int, PartitionInfo]]) -> Plan:
    """The assignment in the topic's node and the states; those who left the assignment delete their logs."""
    before_topic: list[Step] = []
    after_topic: list[Step] = []
    assignments: list[Step] = []
    changed: list[tuple[TopicImage, TopicImage]] = []
    roles: list[RoleChange] = []
    stops: list[Stop] = []
    for name, partitions in changes.items():
        before = context.image.topics[name]
        after = with_partitions(before, partitions, before.version + 1)
        assignments.append(SetData(paths.topic(name), topic_data(after), before.version))
        for index, info in partitions.items():
            old, where = before.partitions[index], TopicPartition(name, index)
            if info.partition_epoch != old.partition_epoch:
                steps = after_topic if info.reassigning else before_topic
                steps += write_state(name, index, old, info)
            if info.partition_epoch >= 0:
                roles.append(told(context, where, info))
            left = [each for each in old.replicas if each not in info.replicas and each in context.image.brokers]
            stops += [Stop(each, where, delete=False) for each in left]
            stops += [Stop(each, where, delete=True) for each in left]
        changed.append((before, after))
    if not changed:
        return Plan()
    return Plan(
        [*before_topic, *assignments, *after_topic],
        ImageDelta(topics_changed=tuple(changed)),
        (RequestBatch(roles, stops=stops),),
    )
