"""Decides what follows when brokers start, leave, bounce, change their addresses, lose a data directory or shut down,
and what a controller that takes over finds undone.

A broker that was registered anew between two looks (another broker epoch) has failed and then started. Who is alive is
changed by one plan; what follows for partitions is decided for some topics at a time (`repair`), so that a failure of a
broker with thousands of partitions holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from braidlog.cluster.control_requests import ANY_BROKER_EPOCH
from braidlog.cluster.image import BrokerInfo, ImageDelta, PartitionInfo
from braidlog.controller import deletion
from braidlog.controller.partitions import clean_leader, repaired, states_plan, told, with_leader
from braidlog.controller.plan import ControllerContext, Plan, RequestBatch, RoleChange, Stop
from braidlog.core.protocol_errors import BrokerNotAvailableError, KafkaStorageError, StaleBrokerEpochError
from braidlog.core.types import BrokerId, TopicPartition


class BrokerChanges(NamedTuple):
    """A bounced broker is in both lists."""

    failed: tuple[BrokerId, ...]
    started: tuple[BrokerId, ...]
    # Same registration, but other addresses, rack or features.
    updated: tuple[BrokerId, ...]


def compare(known: Mapping[BrokerId, BrokerInfo], found: Mapping[BrokerId, BrokerInfo]) -> BrokerChanges:
    return BrokerChanges(
        failed=tuple(each for each in known if each not in found or found[each].epoch != known[each].epoch),
        started=tuple(each for each in found if each not in known or found[each].epoch != known[each].epoch),
        updated=tuple(
            each
            for each in found
            if each in known and found[each].epoch == known[each].epoch and found[each] != known[each]
        ),
    )


def failed(context: ControllerContext, ids: Sequence[BrokerId]) -> Plan:
    """These are gone. What they led and what they were in sync with is for `repair`."""
    gone = frozenset(ids)
    return Plan(
        delta=ImageDelta(brokers={id: info for id, info in context.image.brokers.items() if id not in gone}),
        requests=(RequestBatch(brokers_changed=True),),
        deletions=deletion.suspended(context, lambda where, broker: broker in gone),
        offline_dirs={id: partitions for id, partitions in context.offline_dirs.items() if id not in gone},
        shutting_down=context.shutting_down - gone,
    )


def registered(context: ControllerContext, found: Mapping[BrokerId, BrokerInfo]) -> Plan:
    """These are alive now, in this order of addresses: told to everyone before any of them gets a role."""
    return Plan(delta=ImageDelta(brokers=dict(found)), requests=(RequestBatch(brokers_changed=True),))


def repair(context: ControllerContext, topics: Sequence[str], started: frozenset[BrokerId] = frozenset()) -> Plan:
    """Live leaders and live ISRs for these topics. Brokers that just started are told all that concerns them."""
    live = frozenset(context.image.brokers)
    changes: dict[str, dict[int, PartitionInfo]] = {}
    unchanged: list[RoleChange] = []
    everything: list[TopicPartition] = []
    for name in topics:
        topic = context.image.topic(name)
        if topic is None:
            continue
        for index, before in enumerate(topic.partitions):
            where = TopicPartition(name, index)
            after = repaired(context, where, before, live)
            if after is not before:
                changes.setdefault(name, {})[index] = after
                if started:
                    # In the same request as the others: who started must not take a part of a topic for all of it.
                    everything.append(where)
            elif started and before.partition_epoch >= 0:
                everything.append(where)
                if not started.isdisjoint(before.replicas):
                    unchanged.append(told(context, where, before, started))
    plan = states_plan(context, changes)
    if not everything:
        return plan
    starting = RequestBatch(
        unchanged, everything, metadata_to=tuple(each for each in context.image.brokers if each in started)
    )
    return plan._replace(requests=(starting, *plan.requests))


def take_over(
    context: ControllerContext,
    topics: Sequence[str],
    bump_leader_epochs: bool = False,
    restarted: Set[TopicPartition] = frozenset(),
) -> Plan:
    """Leaders for partitions that have none, or no state yet; roles and metadata of all of them for every broker.

    `bump_leader_epochs` also starts a new epoch wherever nothing else changes: after an unclean stop a log may have
    lost its unsynced tail, and what is then written at those offsets must not look like what readers saw before. So it
    is with partitions whose leader has `restarted`: its followers may have copied that tail.
    """
    live = frozenset(context.image.brokers)
    changes: dict[str, dict[int, PartitionInfo]] = {}
    unchanged = []
    for name in topics:
        topic = context.image.topic(name)
        if topic is None:
            continue
        for index, before in enumerate(topic.partitions):
            where = TopicPartition(name, index)
            after = repaired(context, where, before, live)
            if after is before and before.leader in live and (bump_leader_epochs or where in restarted):
                after = with_leader(context, before, before.leader, before.isr)
            if after is not before:
                changes.setdefault(name, {})[index] = after
            elif before.partition_epoch >= 0:
                unchanged.append(told(context, where, before))
    plan = states_plan(context, changes)
    roles = [*unchanged, *(role for batch in plan.requests for role in batch.roles)]
    return plan._replace(requests=(RequestBatch(roles),)) if roles else plan


def ask_for_log_dirs(context: ControllerContext, broker: BrokerId, topics: Sequence[str]) -> Plan:
    """A data directory of this broker failed: its answer to LeaderAndIsr names the partitions it lost."""
    only = frozenset((broker,))
    roles = [
        told(context, TopicPartition(name, index), info, only)
        for name in topics
        if (topic := context.image.topic(name)) is not None
        for index, info in enumerate(topic.partitions)
        if broker in info.replicas and info.partition_epoch >= 0
    ]
    return Plan(requests=(RequestBatch(roles, metadata_to=()),)) if roles else Plan()


def leader_and_isr_answered(
    context: ControllerContext, broker: BrokerId, answers: Mapping[TopicPartition, int]
) -> Plan:
    """KAFKA_STORAGE_ERROR is a replica in a failed data directory, no error one that works again."""
    if broker not in context.image.brokers:
        return Plan()
    before = context.offline_dirs.get(broker, frozenset())
    offline = {where for where, error in answers.items() if error == KafkaStorageError.code}
    now = (before - {where for where, error in answers.items() if not error}) | offline
    if now == before:
        return Plan()
    changed = sorted(now ^ before)
    offline_dirs = {**context.offline_dirs, broker: now}
    repairs = repair(context._replace(offline_dirs=offline_dirs), list(dict.fromkeys(each.topic for each in changed)))
    # Clients learn of replicas that are offline, also where the leader stays.
    announced = RequestBatch(metadata=[where for where in changed if context.image.partition(where) is not None])
    return repairs._replace(
        requests=(*repairs.requests, announced),
        offline_dirs=offline_dirs,
    )


def check_epoch(context: ControllerContext, broker: BrokerId, epoch: int) -> None:
    """A lower one is an earlier life of that broker; a higher one we have only not heard of yet."""
    info = context.image.brokers.get(broker)
    if info is not None and epoch != ANY_BROKER_EPOCH and epoch < info.epoch:
        raise StaleBrokerEpochError(f"broker {broker} was registered anew: its epoch is {info.epoch}, not {epoch}")


def controlled_shutdown(
    context: ControllerContext, broker: BrokerId, epoch: int, topics: Sequence[str]
) -> tuple[Plan, list[TopicPartition]]:
    """In these topics others lead what this broker leads, and it leaves every ISR.

    Gives what it leads still, of the partitions with several replicas.
    """
    check_epoch(context, broker, epoch)
    if broker not in context.image.brokers:
        raise BrokerNotAvailableError(f"broker {broker} is not registered")
    leaving = context._replace(shutting_down=context.shutting_down | {broker})
    changes, remaining, followed = _without(leaving, broker, topics)
    plan = states_plan(leaving, changes)
    if followed:
        stops = [Stop(broker, where, delete=False) for where in followed]
        plan = plan._replace(requests=(*plan.requests, RequestBatch(stops=stops)))
    return plan._replace(shutting_down=leaving.shutting_down), remaining


def handed_over(context: ControllerContext, broker: BrokerInfo, topics: Sequence[str]) -> Plan:
    """As at a controlled shutdown, for a broker that nothing listens for. It is told as well, should it be alive.

    Where nobody else is in sync it stays the leader: its session decides.
    """
    known = context.image.brokers.get(broker.id)
    if known is None or known.epoch != broker.epoch:
        return Plan()
    leaving = context._replace(shutting_down=context.shutting_down | {broker.id})
    return states_plan(context, _without(leaving, broker.id, topics)[0])


class _Without(NamedTuple):
    changes: dict[str, dict[int, PartitionInfo]]
    # What it leads still, and what it follows.
    remaining: list[TopicPartition]
    followed: list[TopicPartition]


def _without(context: ControllerContext, broker: BrokerId, topics: Sequence[str]) -> _Without:
    """Other leaders and smaller ISRs, wherever there are several replicas. `broker` is shutting down there."""
    changes: dict[str, dict[int, PartitionInfo]] = {}
    remaining: list[TopicPartition] = []
    followed: list[TopicPartition] = []
    for name in topics:
        topic = context.image.topic(name)
        if topic is None or name in context.deletions:
            continue
        for index, before in enumerate(topic.partitions):
            if broker not in before.replicas or len(before.replicas) == 1 or before.partition_epoch == -1:
                continue
            where = TopicPartition(topic.name, index)
            if before.leader == broker:
                clean = clean_leader(context, before, where)
                if clean is None:
                    remaining.append(where)
                    continue
                leader, isr = clean
            else:
                leader, isr = before.leader, before.isr
                followed.append(where)
            # A leader stays in sync, also where it is about to shut down, too: it leads what it got since it asked.
            staying = tuple(each for each in isr if each == leader or each not in context.shutting_down)
            if leader != before.leader or (staying and staying != before.isr):
                after = with_leader(context, before, leader, staying or before.isr)
                changes.setdefault(topic.name, {})[index] = after
    return _Without(changes, remaining, followed)
