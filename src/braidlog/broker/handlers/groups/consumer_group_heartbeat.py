"""ConsumerGroupHeartbeat (api 68): join, stay in and leave a group whose partitions the broker assigns (KIP-848).

v1   members choose their own ids, and may subscribe with a regular expression
"""

from __future__ import annotations

from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroupHeartbeatHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    def handle(self, request: ConsumerGroupHeartbeatRequest, exchange: Exchange) -> None:
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.consumer_heartbeat(request, caller, exchange, now)
        )

    @staticmethod
    def error_response(
        request: ConsumerGroupHeartbeatRequest, version: int, error: ProtocolError
    ) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
