"""Decides about ISR changes that leaders propose (AlterPartition: KIP-497, KIP-704, KIP-841, KIP-903).

The leader epoch stays as it is: the leader knows what it asked for. The others learn by UpdateMetadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.cluster.control_requests import ANY_BROKER_EPOCH
from braidlog.cluster.image import ImageDelta, PartitionInfo, TopicImage
from braidlog.controller.brokers import check_epoch
from braidlog.controller.partitions import RECOVERED, RECOVERING
from braidlog.controller.plan import ControllerContext, Plan, RequestBatch, Step, with_partitions, write_state
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId, TopicPartition


def alter_partition(
    context: ControllerContext, broker: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
) -> tuple[Plan, list[AlterPartitionResult]]:
    """Raises StaleBrokerEpochError for all of them; the other errors are of one partition each."""
    check_epoch(context, broker, broker_epoch)
    accepted: dict[str, dict[int, PartitionInfo]] = {}
    results: list[AlterPartitionResult] = []
    for change in changes:
        where = change.partition
        before = accepted.get(where.topic, {}).get(where.partition) or context.image.partition(where)
        try:
            if before is None or before.partition_epoch == -1:
                raise UnknownTopicOrPartitionError(f"The partition {where} does not exist.")
            after = _altered(context, broker, change, before)
        except ProtocolError as error:
            results.append(AlterPartitionResult(where, error))
            continue
        results.append(AlterPartitionResult(where, None, after))
        if after is not before:
            accepted.setdefault(where.topic, {})[where.partition] = after
    return _plan(context, accepted), results


def _altered(
    context: ControllerContext, broker: BrokerId, change: PartitionChange, before: PartitionInfo
) -> PartitionInfo:
    where = change.partition
    if change.leader_epoch > before.leader_epoch or change.partition_epoch > before.partition_epoch:
        # Only a newer controller can have told it so.
        raise NotControllerError(f"{where} is at leader epoch {before.leader_epoch} here, not {change.leader_epoch}")
    if change.leader_epoch < before.leader_epoch:
        raise FencedLeaderEpochError(f"{where} is at leader epoch {before.leader_epoch}, not {change.leader_epoch}")
    isr = tuple(each for each, _ in change.isr)
    if isr == before.isr and change.recovery_state == before.leader_recovery_state:
        return before  # the answer to an earlier request was lost
    if change.partition_epoch < before.partition_epoch:
        raise InvalidUpdateVersionError(
            f"{where} is at partition epoch {before.partition_epoch}, not {change.partition_epoch}"
        )
    if broker != before.leader:
        raise InvalidRequestError(f"broker {before.leader} leads {where}, not {broker}")
    if before.leader not in isr or len(set(isr)) != len(isr) or any(each not in before.replicas for each in isr):
        raise InvalidRequestError(f"the ISR {list(isr)} of {where} must hold its leader and be within its replicas")
    if change.recovery_state == RECOVERING and (len(isr) > 1 or before.leader_recovery_state == RECOVERED):
        raise InvalidRequestError(f"{where} recovers only right after an unclean election, and alone in the ISR")
    ineligible = [each for each, epoch in change.isr if not _eligible(context, where, each, epoch)]
    if ineligible:
        raise IneligibleReplicaError(f"{ineligible} cannot join the ISR of {where}: not registered, or registered anew")
    return before._replace(
        isr=isr,
        leader_recovery_state=change.recovery_state,
        controller_epoch=context.controller_epoch,
        partition_epoch=before.partition_epoch + 1,
    )


def _eligible(context: ControllerContext, where: TopicPartition, broker: BrokerId, epoch: int) -> bool:
    if not context.online(broker, where) or broker in context.shutting_down:
        return False
    return epoch in (ANY_BROKER_EPOCH, context.image.brokers[broker].epoch)


def _plan(context: ControllerContext, accepted: dict[str, dict[int, PartitionInfo]]) -> Plan:
    steps: list[Step] = []
    changed: list[tuple[TopicImage, TopicImage]] = []
    metadata: list[TopicPartition] = []
    for name, partitions in accepted.items():
        topic = context.image.topics[name]
        for index, after in partitions.items():
            steps += write_state(name, index, topic.partitions[index], after)
            metadata.append(TopicPartition(name, index))
        changed.append((topic, with_partitions(topic, partitions, topic.version)))
    if not changed:
        return Plan()
    return Plan(steps, ImageDelta(topics_changed=tuple(changed)), (RequestBatch(metadata=metadata),))
