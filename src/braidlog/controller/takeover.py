"""Decides what a controller that takes over finds undone, and tells every broker where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster.image import PartitionInfo
from braidlog.controller.partitions import repaired, states_plan, told, with_leader
from braidlog.controller.plan import ControllerContext, Plan, RequestBatch
from braidlog.core.types import TopicPartition


def take_over(context: ControllerContext, topics: Sequence[str], bump_leader_epochs: bool = False) -> Plan:
    """Leaders for partitions that have none, or no state yet; roles and metadata of all of them for every broker.

    `bump_leader_epochs` also starts a new epoch wherever nothing else changes: after an unclean stop a log may have
    lost its unsynced tail, and what is then written at those offsets must not look like what readers saw before.
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
            if after is before and bump_leader_epochs and before.leader in live:
                after = with_leader(context, before, before.leader, before.isr)
            if after is not before:
                changes.setdefault(name, {})[index] = after
            elif before.partition_epoch >= 0:
                unchanged.append(told(context, where, before))
    plan = states_plan(context, changes)
    roles = [*unchanged, *(role for batch in plan.requests for role in batch.roles)]
    return plan._replace(requests=(RequestBatch(roles),)) if roles else plan
