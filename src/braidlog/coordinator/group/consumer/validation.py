"""What a ConsumerGroupHeartbeat must say, whatever the group is like, and whose epochs are believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog.coordinator.group.consumer.member import AWAY, JOINING, LEFT, Assignment, ConsumerGroupMember, holds_all
from braidlog.coordinator.group.consumer.subscriptions import TopicRegexResolver
from braidlog.core.protocol_errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# The first version in which members choose their ids, and may subscribe with a pattern.
OWN_ID_FROM: Final = 1


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str], resolver: TopicRegexResolver
) -> None:
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise InvalidRequestError(f"{name} must not be empty")
    epoch = request.member_epoch
    if (version >= OWN_ID_FROM or epoch != JOINING) and not request.member_id.strip():
        raise InvalidRequestError("MemberId must not be empty")
    if epoch == JOINING:
        _validate_join(request, version)
    elif epoch == AWAY:
        if request.instance_id is None:
            raise InvalidRequestError("InstanceId must be there: only static members leave for a while")
    elif epoch < LEFT:
        raise InvalidRequestError(f"MemberEpoch {epoch} is invalid")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"there is no assignor {request.server_assignor!r}, only {', '.join(assignors)}"
        raise UnsupportedAssignorError(message)
    if request.subscribed_topic_regex:
        resolver.validate(request.subscribed_topic_regex)


def _validate_join(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequestError("RebalanceTimeoutMs must be there when joining")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequestError("TopicPartitions must be there, and empty, when joining")
    names = request.subscribed_topic_names
    if version < OWN_ID_FROM:
        if not names:
            raise InvalidRequestError("SubscribedTopicNames must be there when joining")
    elif names is None and request.subscribed_topic_regex is None:
        raise InvalidRequestError("SubscribedTopicNames or SubscribedTopicRegex must be there when joining")


def validate_epoch(member: ConsumerGroupMember, epoch: int, owned: Assignment | None) -> None:
    """A member that missed an answer comes with the epoch before, and owns no more than the group thinks."""
    if epoch == member.epoch:
        return
    progress = member.progress
    missed = epoch < member.epoch and epoch == progress.previous_epoch
    if missed and owned is not None and holds_all(progress.assigned, owned):
        return
    less = "less" if epoch < member.epoch else "more"
    raise FencedMemberEpochError(
        f"member {member.member_id!r} is in epoch {member.epoch}, it says {epoch}, {less} than that: "
        "give up all partitions and join again"
    )


def require_static(member: ConsumerGroupMember | None, member_id: str, instance_id: str) -> ConsumerGroupMember:
    """The member of that instance, if it is the one that asks."""
    if member is None:
        raise UnknownMemberIdError(f"there is no instance {instance_id!r}; join again")
    if member.member_id != member_id:
        raise FencedInstanceIdError(f"instance {instance_id!r} belongs to member {member.member_id!r} now")
    return member


def require_released(member: ConsumerGroupMember, member_id: str, instance_id: str) -> None:
    """An instance can be taken over once its member said that it goes for a while."""
    if member.epoch != AWAY:
        message = f"member {member_id!r} cannot join: instance {instance_id!r} belongs to member {member.member_id!r}"
        raise UnreleasedInstanceIdError(message)
