"""DescribeGroups (api 15): classic groups with their members.

v3   what the client may do with the group    v6   a group that is not there is an error, no longer "Dead"
"""

from __future__ import annotations

from braidlog.broker.handlers.authorized_operations import GROUP_OPERATIONS
from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import GroupIdNotFoundError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

DEAD = "Dead"
SAYS_NOT_FOUND_FROM = 6


class DescribeGroupsHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    async def handle(self, request: DescribeGroupsRequest, exchange: Exchange) -> DescribeGroupsResponse:
        time_slice = TimeSlice()
        groups: list[DescribedGroup] = []
        # A group that is named again is described once: it may have many members.
        for group_id in dict.fromkeys(request.groups):
            groups.append(await self._describe(group_id, exchange.version))
            await time_slice.yield_if_over()
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code in (0, GroupIdNotFoundError.code):
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    async def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            answer = await self._groups.ask(
                group_id, lambda shard, responder, now: shard.describe_group(group_id, responder, now)
            )
        except GroupIdNotFoundError as error:
            if version >= SAYS_NOT_FOUND_FROM:
                return failed(group_id, version, error, DEAD)
            return DescribedGroup(group_id=group_id, group_state=DEAD)
        except ProtocolError as error:
            return failed(group_id, version, error)
        assert isinstance(answer, DescribedGroup)
        return answer

    @staticmethod
    def error_response(request: DescribeGroupsRequest, version: int, error: ProtocolError) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[failed(group_id, version, error) for group_id in request.groups])


def failed(group_id: str, version: int, error: ProtocolError, state: str = "") -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=error.code,
        error_message=error.message if version >= SAYS_NOT_FOUND_FROM else None,
        group_state=state,
    )
