"""Decides who leads: on request (KIP-183, KIP-460), and when a controller takes over and finds leaders gone."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster.image import ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.controller.plan import ControllerContext, Plan, Step, initial_state, with_partitions, write_state
from braidlog.controller.requests import ElectionType, PartitionResult
from braidlog.core.protocol_errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition


def elect_leaders(
    context: ControllerContext, election_type: int, partitions: Sequence[TopicPartition] | None
) -> tuple[Plan, list[PartitionResult]]:
    """For None, every partition that needs it: those that do not are left out of the answer."""
    if election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        raise InvalidRequestError(f"election type {election_type} is unknown (0 preferred, 1 unclean)")
    image = context.image
    wanted = all_partitions(image) if partitions is None else list(dict.fromkeys(partitions))
    changes: dict[str, dict[int, PartitionInfo]] = {}
    results: list[PartitionResult] = []
    for each in wanted:
        try:
            before = _existing(image, each)
            if election_type == ElectionType.PREFERRED:
                leader, isr = _preferred(before, image, each)
            else:
                leader, isr = _unclean(before, image, each)
        except ElectionNotNeededError as error:
            if partitions is not None:
                results.append(PartitionResult(each, error))
            continue
        except ProtocolError as error:
            results.append(PartitionResult(each, error))
            continue
        changes.setdefault(each.topic, {})[each.partition] = with_leader(context, before, leader, isr)
        results.append(PartitionResult(each))
    return state_plan(image, changes), results


def _existing(image: ClusterImage, partition: TopicPartition) -> PartitionInfo:
    found = image.partition(partition)
    if found is None:
        raise UnknownTopicOrPartitionError(f"No such partition as {partition}")
    return found


def _preferred(
    before: PartitionInfo, image: ClusterImage, where: TopicPartition
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    preferred = before.replicas[0]
    if before.leader == preferred:
        raise ElectionNotNeededError(f"broker {preferred} leads {where} already")
    if preferred not in image.brokers or preferred not in before.isr:
        state = "not registered" if preferred not in image.brokers else "not in sync"
        raise PreferredLeaderNotAvailableError(
            f"broker {preferred}, which should lead {where}, is {state}: try again once it has caught up"
        )
    return preferred, before.isr


def _unclean(
    before: PartitionInfo, image: ClusterImage, where: TopicPartition
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    if before.leader in image.brokers:
        raise ElectionNotNeededError(f"{where} has a live leader, broker {before.leader}")
    clean = _clean(before, image)
    if clean is not None:
        return clean
    alive = [replica for replica in before.replicas if replica in image.brokers]
    if not alive:
        raise EligibleLeadersNotAvailableError(f"none of the replicas {list(before.replicas)} of {where} is alive")
    # Whatever this replica lacks is lost: the ones that had it must copy from it.
    return alive[0], (alive[0],)


def _clean(before: PartitionInfo, image: ClusterImage) -> tuple[BrokerId, tuple[BrokerId, ...]] | None:
    """The first live in-sync replica in the order of the assignment, with all live in-sync ones."""
    isr = tuple(each for each in before.isr if each in image.brokers)
    leader = next((each for each in before.replicas if each in isr), None)
    return None if leader is None else (leader, isr)


def take_over(context: ControllerContext, bump_leader_epochs: bool) -> Plan:
    """What a controller finds undone: partitions without a state, and leaders that are gone.

    `bump_leader_epochs` also starts a new epoch wherever nothing else changes: after an unclean stop a log may have
    lost its unsynced tail, and what is then written at those offsets must not look like what readers saw before.
    """
    image = context.image
    changes: dict[str, dict[int, PartitionInfo]] = {}
    for topic in image.topics.values():
        for index, before in enumerate(topic.partitions):
            after = _taken_over(context, before, bump_leader_epochs)
            if after is not before:
                changes.setdefault(topic.name, {})[index] = after
    return state_plan(image, changes)


def _taken_over(context: ControllerContext, before: PartitionInfo, bump: bool) -> PartitionInfo:
    image = context.image
    if before.partition_epoch == -1:
        alive = [each for each in before.replicas if each in image.brokers]
        return initial_state(before.replicas, alive, context.controller_epoch) if alive else before
    if before.leader in image.brokers:
        return with_leader(context, before, before.leader, before.isr) if bump else before
    clean = _clean(before, image)
    if clean is not None:
        return with_leader(context, before, *clean)
    # The last in-sync replica stays listed: it alone may lead again without losing anything.
    return before if before.leader == NO_BROKER else with_leader(context, before, NO_BROKER, before.isr)


def with_leader(
    context: ControllerContext, before: PartitionInfo, leader: BrokerId, isr: tuple[BrokerId, ...]
) -> PartitionInfo:
    return before._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(before.leader_epoch + 1),
        isr=isr,
        controller_epoch=context.controller_epoch,
        partition_epoch=before.partition_epoch + 1,
    )


def state_plan(image: ClusterImage, changes: dict[str, dict[int, PartitionInfo]]) -> Plan:
    """Write the new states of these partitions."""
    steps: list[Step] = []
    changed: list[tuple[TopicImage, TopicImage]] = []
    for name, partitions in changes.items():
        topic = image.topics[name]
        for index, after in partitions.items():
            steps += write_state(name, index, topic.partitions[index], after)
        changed.append((topic, with_partitions(topic, partitions, topic.version)))
    return Plan(steps, ImageDelta(topics_changed=tuple(changed)))


def all_partitions(image: ClusterImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index) for topic in image.topics.values() for index in range(len(topic.partitions))
    ]
