"""Heartbeat (api 12): a member is alive; the answer tells it when to join again. v3 knows static members."""

from __future__ import annotations

from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import NONE, CoordinatorLoadInProgressError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


class HeartbeatHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    def handle(self, request: HeartbeatRequest, exchange: Exchange) -> None:
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.heartbeat(request, caller, exchange, now)
        )

    @staticmethod
    def error_response(request: HeartbeatRequest, version: int, error: ProtocolError) -> HeartbeatResponse:
        if error.code == CoordinatorLoadInProgressError.code:
            # Nobody's session ends while the coordinator loads, and a client has no use for the news.
            return HeartbeatResponse(error_code=NONE)
        return HeartbeatResponse(error_code=error.code)
