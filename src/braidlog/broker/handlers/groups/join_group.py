"""JoinGroup (api 11): enter a classic group; answered when the next generation begins.

v0   the session timeout is the rebalance timeout     v7   the answer names the protocol type
v4   a member first learns its id (KIP-394)           v8   with the member's reason
v5   static members (KIP-345)                         v9   a static leader may be told not to assign (KIP-814)
"""

from __future__ import annotations

from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import GroupMaxSizeReachedError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse


class JoinGroupHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    def handle(self, request: JoinGroupRequest, exchange: Exchange) -> None:
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
            # Whoever was turned away has no id in this group any more.
            member_id="" if isinstance(error, GroupMaxSizeReachedError) else request.member_id,
        )
