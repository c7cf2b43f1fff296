"""Decides about moving replicas between brokers (KIP-455).

    start      replicas = target + the ones to remove; `adding` are the new ones
    finish     once every target is in sync: replicas = target, the rest leaves the ISR, a target leads
    cancel     replicas = the ones before the start

A target that is in sync already, as every target on a single broker is, finishes at its start.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster import paths
from braidlog.cluster.image import ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.store import SetData
from braidlog.controller.elections import all_partitions, with_leader
from braidlog.controller.placement import check_replicas
from braidlog.controller.plan import ControllerContext, Plan, Step, topic_data, with_partitions, write_state
from braidlog.controller.requests import OngoingReassignment, PartitionResult, Reassignment
from braidlog.core.protocol_errors import (
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId, TopicPartition


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
            if before is None:
                raise UnknownTopicOrPartitionError(f"The partition {where} does not exist.")
            after = _cancelled(context, where, before) if replicas is None else _moved(context, where, before, replicas)
        except ProtocolError as error:
            results.append(PartitionResult(where, error))
            continue
        if after != before:
            changes.setdefault(where.topic, {})[where.partition] = after
        results.append(PartitionResult(where))
    return _plan(image, changes), results


def list_reassignments(image: ClusterImage, partitions: Sequence[TopicPartition] | None) -> list[OngoingReassignment]:
    """The moves under way, of all partitions or of these."""
    ongoing = []
    for where in all_partitions(image) if partitions is None else dict.fromkeys(partitions):
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
    if any(each not in before.isr for each in adding) or not any(each in before.isr for each in target):
        return started
    return _finished(context, started, target)


def _finished(context: ControllerContext, moving: PartitionInfo, target: tuple[BrokerId, ...]) -> PartitionInfo:
    isr = tuple(each for each in moving.isr if each in target)
    settled = moving._replace(replicas=target, adding=(), removing=())
    if isr == moving.isr and moving.leader in target:
        return settled
    leader = moving.leader if moving.leader in target else next(each for each in target if each in isr)
    return with_leader(context, settled, leader, isr)


def _cancelled(context: ControllerContext, where: TopicPartition, before: PartitionInfo) -> PartitionInfo:
    if not before.reassigning:
        raise NoReassignmentInProgressError(f"no reassignment of {where} is under way")
    origin = tuple(each for each in before.replicas if each not in before.adding)
    if not any(each in before.isr for each in origin):
        raise InvalidReplicaAssignmentError(
            f"none of the former replicas {list(origin)} of {where} is in sync any more: "
            "let the reassignment finish, or reassign to other brokers"
        )
    return _finished(context, before, origin)


def _plan(image: ClusterImage, changes: dict[str, dict[int, PartitionInfo]]) -> Plan:
    """The assignment in the topic's node, and the states of those partitions whose leader or ISR changed."""
    steps: list[Step] = []
    changed: list[tuple[TopicImage, TopicImage]] = []
    for name, partitions in changes.items():
        before = image.topics[name]
        after = with_partitions(before, partitions, before.version + 1)
        steps.append(SetData(paths.topic(name), topic_data(after), before.version))
        for index, partition in partitions.items():
            if partition.partition_epoch != before.partitions[index].partition_epoch:
                steps += write_state(name, index, before.partitions[index], partition)
        changed.append((before, after))
    return Plan(steps, ImageDelta(topics_changed=tuple(changed)))
