"""ConsumerGroupDescribe (api 69): groups whose partitions the broker assigns, with their members.

v1   which protocol each member speaks
"""

from __future__ import annotations

from braidlog.broker.authorized_operations import GROUP_OPERATIONS
from braidlog.broker.slices import Pace
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.runtime import Coordinator
from braidlog.core.protocol_errors import InvalidGroupIdError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


class ConsumerGroupDescribeHandler:
    def __init__(self, groups: Coordinator[GroupShard]) -> None:
        self._groups = groups

    async def handle(self, request: ConsumerGroupDescribeRequest, exchange: Exchange) -> ConsumerGroupDescribeResponse:
        pace = Pace()
        groups: list[DescribedGroup] = []
        # A group that is named again is described once: it may have many members.
        for group_id in dict.fromkeys(request.group_ids):
            groups.append(await self._describe(group_id))
            await pace.rest_if_due()
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == 0:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _describe(self, group_id: str) -> DescribedGroup:
        try:
            if not group_id:
                raise InvalidGroupIdError("the id of a group must not be empty")
            answer = await self._groups.ask(
                group_id, lambda shard, ticket, now: shard.describe_consumer_group(group_id, ticket, now)
            )
        except ProtocolError as error:
            return failed(group_id, error)
        assert isinstance(answer, DescribedGroup)
        return answer


def failed(group_id: str, error: ProtocolError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def refuse(request: ConsumerGroupDescribeRequest, version: int, error: ProtocolError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[failed(group_id, error) for group_id in request.group_ids])
