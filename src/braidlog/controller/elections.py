"""Decides who leads on request (KIP-183, KIP-460), and which preferred leaders are to be elected by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster.image import ClusterImage, PartitionInfo
from braidlog.controller.partitions import RECOVERING, clean_leader, states_plan, unclean_leader, with_leader
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.controller.requests import ElectionType, PartitionResult
from braidlog.core.protocol_errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId, TopicPartition


def elect_leaders(
    context: ControllerContext, election_type: int, partitions: Sequence[TopicPartition], *, only_needed: bool = False
) -> tuple[Plan, list[PartitionResult]]:
    """With `only_needed`, partitions that need no election are left out of the answer."""
    if election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise InvalidRequestError(f"election type {election_type} is unknown (0 preferred, 1 unclean)")
    elect = _preferred if election_type == ElectionType.PREFERRED else _unclean
    changes: dict[str, dict[int, PartitionInfo]] = {}
    results: list[PartitionResult] = []
    for each in dict.fromkeys(partitions):
        try:
            after = elect(context, _existing(context.image, each), each)
        except ElectionNotNeededError as error:
            if not only_needed:
                results.append(PartitionResult(each, error))
            continue
        except ProtocolError as error:
            results.append(PartitionResult(each, error))
            continue
        changes.setdefault(each.topic, {})[each.partition] = after
        results.append(PartitionResult(each))
    return states_plan(context, changes), results


def _existing(image: ClusterImage, partition: TopicPartition) -> PartitionInfo:
    found = image.partition(partition)
    if found is None:
        raise UnknownTopicOrPartitionError(f"No such partition as {partition}")
    return found


def _preferred(context: ControllerContext, before: PartitionInfo, where: TopicPartition) -> PartitionInfo:
    preferred = before.replicas[0]
    if before.leader == preferred:
        raise ElectionNotNeededError(f"broker {preferred} leads {where} already")
    if not _may_lead(context, before, where, preferred):
        state = "not registered" if preferred not in context.image.brokers else "not in sync"
        raise PreferredLeaderNotAvailableError(
            f"broker {preferred}, which should lead {where}, is {state}: try again once it has caught up"
        )
    return with_leader(context, before, preferred, before.isr)


def _may_lead(context: ControllerContext, info: PartitionInfo, where: TopicPartition, broker: BrokerId) -> bool:
    return context.online(broker, where) and broker in info.isr and broker not in context.shutting_down


def _unclean(context: ControllerContext, before: PartitionInfo, where: TopicPartition) -> PartitionInfo:
    if context.online(before.leader, where):
        raise ElectionNotNeededError(f"{where} has a live leader, broker {before.leader}")
    clean = clean_leader(context, before, where)
    if clean is not None:
        return with_leader(context, before, *clean)
    leader = unclean_leader(context, before, where)
    if leader is None:
        # One whose log is lost with its disk begins with an empty one.
        candidates = [each for each in before.replicas if each in context.image.brokers]
        leader = next((each for each in candidates if each not in context.shutting_down), None)
    if leader is None:
        raise EligibleLeadersNotAvailableError(f"none of the replicas {list(before.replicas)} of {where} is alive")
    return with_leader(context, before, leader, (leader,), RECOVERING)


def imbalanced(context: ControllerContext) -> list[TopicPartition]:
    """Partitions to be led by their preferred replica again: of brokers that lead too few of those they should."""
    image = context.image
    preferred: dict[BrokerId, int] = {}
    others: dict[BrokerId, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for index, info in enumerate(topic.partitions):
            first = info.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            if info.leader != first:
                others.setdefault(first, []).append(TopicPartition(topic.name, index))
    percentage = context.settings.get_int("leader.imbalance.per.broker.percentage")
    wanted: list[TopicPartition] = []
    for broker, partitions in others.items():
        if broker in image.brokers and len(partitions) * 100 > percentage * preferred[broker]:
            for where in partitions:
                info = _existing(image, where)
                served = not info.reassigning and where.topic not in context.deletions
                if served and _may_lead(context, info, where, broker):
                    wanted.append(where)
    return wanted


def all_partitions(image: ClusterImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index) for topic in image.topics.values() for index in range(len(topic.partitions))
    ]
