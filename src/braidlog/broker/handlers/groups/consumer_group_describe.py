"""ConsumerGroupDescribe (api 69): groups whose partitions the broker assigns, with their members.

v1   which protocol each member speaks
"""

from __future__ import annotations

from braidlog.broker.handlers.authorized_operations import GROUP_OPERATIONS
from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import InvalidGroupIdError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


class ConsumerGroupDescribeHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    async def handle(self, request: ConsumerGroupDescribeRequest, exchange: Exchange) -> ConsumerGroupDescribeResponse:
        time_slice = TimeSlice()
        groups: list[DescribedGroup] = []
        # A group that is named again is described once: it may have many members.
        for group_id in dict.fromkeys(request.group_ids):
            groups.append(await self._describe(group_id))
            await time_slice.yield_if_over()
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
                group_id, lambda shard, responder, now: shard.describe_consumer_group(group_id, responder, now)
            )
        except ProtocolError as error:
            return failed(group_id, error)
        assert isinstance(answer, DescribedGroup)
        return answer

    @staticmethod
    def error_response(
        request: ConsumerGroupDescribeRequest, version: int, error: ProtocolError
    ) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=[failed(group_id, error) for group_id in request.group_ids])


def failed(group_id: str, error: ProtocolError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
