"""LeaveGroup (api 13): members go at once instead of being missed. v3 several at a time, v5 each with its reason."""

from __future__ import annotations

from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse


class LeaveGroupHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    def handle(self, request: LeaveGroupRequest, exchange: Exchange) -> None:
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.leave_group(request, caller, exchange, now)
        )

    @staticmethod
    def error_response(request: LeaveGroupRequest, version: int, error: ProtocolError) -> LeaveGroupResponse:
        return LeaveGroupResponse(error_code=error.code)
