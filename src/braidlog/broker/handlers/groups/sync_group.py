"""SyncGroup (api 14): the leader brings the assignment of the generation, everybody else asks for its part.

v3   static members (KIP-345)     v5   names the protocol, so that a mix-up is noticed (KIP-559)
"""

from __future__ import annotations

from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse


class SyncGroupHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    def handle(self, request: SyncGroupRequest, exchange: Exchange) -> None:
        caller = caller_of(exchange)
        self._groups.submit(
            request.group_id, exchange, lambda shard, now: shard.sync_group(request, caller, exchange, now)
        )
        if not exchange.finished:
            exchange.channel.mute()

    @staticmethod
    def error_response(request: SyncGroupRequest, version: int, error: ProtocolError) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=error.code)
