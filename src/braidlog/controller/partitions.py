"""The states of a partition as the controller sees them, and how one gets back to a live leader and a live ISR.

A partition's state follows from its leader, so none is stored. Whatever happened (a broker or a data directory failed,
a broker came back, a controller took over), `repaired` says what the partition should be now.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from braidlog.cluster.image import ImageDelta, PartitionInfo, TopicImage
from braidlog.controller.plan import (
    ControllerContext,
    Plan,
    RequestBatch,
    RoleChange,
    Step,
    initial_state,
    with_partitions,
    write_state,
)
from braidlog.controller.replicas import IllegalMoveError
from braidlog.core.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition

UNCLEAN: Final = "unclean.leader.election.enable"
RECOVERED: Final = 0
RECOVERING: Final = 1


class PartitionState(Enum):
    NON_EXISTENT = "NonExistentPartition"
    # Assigned, but no replica was alive to lead it: it has no state in the store.
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


_STATE = PartitionState

# Each state, and those that a partition may come from.
LEGAL_MOVES: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    _STATE.NEW: frozenset({_STATE.NON_EXISTENT}),
    _STATE.ONLINE: frozenset({_STATE.NEW, _STATE.ONLINE, _STATE.OFFLINE}),
    _STATE.OFFLINE: frozenset({_STATE.NEW, _STATE.ONLINE, _STATE.OFFLINE}),
    _STATE.NON_EXISTENT: frozenset({_STATE.OFFLINE}),
}


def state_of(context: ControllerContext, where: TopicPartition, info: PartitionInfo | None) -> PartitionState:
    if info is None:
        return _STATE.NON_EXISTENT
    if info.partition_epoch == -1:
        return _STATE.NEW
    return _STATE.ONLINE if context.online(info.leader, where) else _STATE.OFFLINE


def with_leader(
    context: ControllerContext,
    before: PartitionInfo,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    recovery_state: int | None = None,
) -> PartitionInfo:
    """The state that the controller writes next: always with a new leader epoch, as brokers ignore an equal one."""
    return before._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(before.leader_epoch + 1),
        isr=isr,
        controller_epoch=context.controller_epoch,
        partition_epoch=before.partition_epoch + 1,
        leader_recovery_state=before.leader_recovery_state if recovery_state is None else recovery_state,
    )


def clean_leader(
    context: ControllerContext, before: PartitionInfo, where: TopicPartition
) -> tuple[BrokerId, tuple[BrokerId, ...]] | None:
    """The first live in-sync replica in the order of the assignment, with all live in-sync ones."""
    isr = tuple(each for each in before.isr if context.online(each, where))
    leader = next((each for each in before.replicas if each in isr and each not in context.shutting_down), None)
    return None if leader is None else (leader, isr)


def unclean_leader(context: ControllerContext, before: PartitionInfo, where: TopicPartition) -> BrokerId | None:
    """The first replica that is online. Whatever it lacks is lost: the ones that had it must copy from it."""
    candidates = context.online_replicas(before, where)
    return next((each for each in candidates if each not in context.shutting_down), None)


def repaired(
    context: ControllerContext, where: TopicPartition, before: PartitionInfo, live: frozenset[BrokerId]
) -> PartitionInfo:
    """The same value where nothing is to do. `live` are the ids of the live brokers."""
    if before.leader in live and not context.offline_dirs and live.issuperset(before.isr):
        return before
    if before.partition_epoch == -1:
        alive = context.online_replicas(before, where)
        if not alive:
            return before
        started = initial_state(before.replicas, alive, context.controller_epoch)
        return started._replace(adding=before.adding, removing=before.removing)
    if context.online(before.leader, where):
        isr = tuple(each for each in before.isr if context.online(each, where))
        return before if isr == before.isr else with_leader(context, before, before.leader, isr)
    clean = clean_leader(context, before, where)
    if clean is not None:
        return with_leader(context, before, *clean)
    if unclean_allowed(context, where.topic):
        leader = unclean_leader(context, before, where)
        if leader is not None:
            return with_leader(context, before, leader, (leader,), RECOVERING)
    # The last in-sync replicas stay listed: they alone may lead again without losing anything.
    return before if before.leader == NO_BROKER else with_leader(context, before, NO_BROKER, before.isr)


def unclean_allowed(context: ControllerContext, topic: str) -> bool:
    override = context.image.topic_config(topic).get(UNCLEAN)
    return context.settings.get_bool(UNCLEAN) if override is None else override.strip().lower() == "true"


def told(
    context: ControllerContext, where: TopicPartition, info: PartitionInfo, only: frozenset[BrokerId] | None = None
) -> RoleChange:
    """LeaderAndIsr for the live replicas, or for some of them.

    Where there is a leader, also for one whose log is offline: its next role may be one that it can take.
    """
    live = context.online_replicas(info, where) if info.leader == NO_BROKER else context.image.brokers
    brokers = tuple(each for each in info.replicas if each in live and (only is None or each in only))
    return RoleChange(where, brokers, tuple(each for each in brokers if each in info.adding and each not in info.isr))


def states_plan(context: ControllerContext, changes: Mapping[str, Mapping[int, PartitionInfo]]) -> Plan:
    """Write these states and tell of them."""
    steps: list[Step] = []
    changed: list[tuple[TopicImage, TopicImage]] = []
    roles: list[RoleChange] = []
    for name, partitions in changes.items():
        topic = context.image.topics[name]
        for index, after in partitions.items():
            before = topic.partitions[index]
            where = TopicPartition(name, index)
            _check_move(context, where, before, after)
            steps += write_state(name, index, before, after)
            role = told(context, where, after)
            roles.append(role._replace(new=role.brokers) if before.partition_epoch == -1 else role)
        changed.append((topic, with_partitions(topic, partitions, topic.version)))
    if not changed:
        return Plan()
    return Plan(steps, ImageDelta(topics_changed=tuple(changed)), (RequestBatch(roles),))


def _check_move(context: ControllerContext, where: TopicPartition, before: PartitionInfo, after: PartitionInfo) -> None:
    old, new = state_of(context, where, before), state_of(context, where, after)
    if old not in LEGAL_MOVES[new] or (before.partition_epoch >= 0 and after.leader_epoch <= before.leader_epoch):
        raise IllegalMoveError(f"{where} cannot go from {old.value} {before} to {new.value} {after}")
