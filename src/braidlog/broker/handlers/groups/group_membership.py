"""Membership of groups.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup are the classic protocol, ConsumerGroupHeartbeat the consumer protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import (
    NONE,
    CoordinatorLoadInProgressError,
    GroupMaxSizeReachedError,
    ProtocolError,
    UnsupportedVersionError,
)
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse


class JoinGroupHandler:
    """JoinGroup (api 11): enter a classic group; answered when the next generation begins.

    v0   the session timeout is the rebalance timeout     v7   the answer names the protocol type
    v4   a member first learns its id (KIP-394)           v8   with the member's reason
    v5   static members (KIP-345)                         v9   a static leader may have to skip assigning (KIP-814)
    """

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    def handle(self, request: JoinGroupRequest, exchange: Exchange) -> None:
        self._authorizer.check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.join_group(request, caller, exchange, now)
        )
        if not exchange.finished:
            # Others must join first: what this member sends next waits, too.
            exchange.channel.mute()

    @staticmethod
    def error_response(request: JoinGroupRequest, version: int, error: ProtocolError) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=error.code,
            protocol_name=None if version >= 7 else "",
            # A member that was turned away has no id in this group any more.
            member_id="" if isinstance(error, GroupMaxSizeReachedError) else request.member_id,
        )


class SyncGroupHandler:
    """SyncGroup (api 14): the leader brings the assignment of the generation, everybody else asks for its part.

    v3   static members (KIP-345)     v5   names the protocol, so that a mix-up is noticed (KIP-559)
    """

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    def handle(self, request: SyncGroupRequest, exchange: Exchange) -> None:
        self._authorizer.check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.sync_group(request, caller, exchange, now)
        )
        if not exchange.finished:
            exchange.channel.mute()

    @staticmethod
    def error_response(request: SyncGroupRequest, version: int, error: ProtocolError) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=error.code)


class HeartbeatHandler:
    """Heartbeat (api 12): a member is alive; the answer tells it when to join again. v3 knows static members."""

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    def handle(self, request: HeartbeatRequest, exchange: Exchange) -> None:
        self._authorizer.check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.heartbeat(request, caller, exchange, now)
        )

    @staticmethod
    def error_response(request: HeartbeatRequest, version: int, error: ProtocolError) -> HeartbeatResponse:
        if error.code == CoordinatorLoadInProgressError.code:
            # No session ends while the coordinator loads, and a client has no use for the news.
            return HeartbeatResponse(error_code=NONE)
        return HeartbeatResponse(error_code=error.code)


class LeaveGroupHandler:
    """LeaveGroup (api 13): members go at once instead of being missed. v3 several at a time, v5 with their reasons."""

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    def handle(self, request: LeaveGroupRequest, exchange: Exchange) -> None:
        self._authorizer.check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.leave_group(request, caller, exchange, now)
        )

    @staticmethod
    def error_response(request: LeaveGroupRequest, version: int, error: ProtocolError) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=error.code)


class ConsumerGroupHeartbeatHandler:
    """ConsumerGroupHeartbeat (api 68): join, stay in and leave a group whose partitions the broker assigns (KIP-848).

    v1   members choose their own ids, and may subscribe with a regular expression
    """

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        authorizer: Authorizer,
        serves_protocol: Callable[[], bool] = lambda: True,
    ) -> None:
        self._groups = groups
        self._authorizer = authorizer
        self._serves_protocol = serves_protocol

    def handle(self, request: ConsumerGroupHeartbeatRequest, exchange: Exchange) -> None:
        if not self._serves_protocol():
            raise UnsupportedVersionError(
                "the consumer group protocol is off in this cluster (feature group.version, or a broker of another "
                "kind); use group.protocol=classic"
            )
        self._authorizer.check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.consumer_heartbeat(request, caller, exchange, now)
        )

    @staticmethod
    def error_response(
        request: ConsumerGroupHeartbeatRequest, version: int, error: ProtocolError
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
