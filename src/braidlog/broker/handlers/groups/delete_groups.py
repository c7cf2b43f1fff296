"""DeleteGroups (api 42): groups without members, with all their offsets."""

from __future__ import annotations

from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


class DeleteGroupsHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard]) -> None:
        self._groups = groups

    async def handle(self, request: DeleteGroupsRequest, exchange: Exchange) -> DeleteGroupsResponse:
        # Named twice, a group would not be there the second time.
        time_slice = TimeSlice()
        results: list[DeletableGroupResult] = []
        for name in dict.fromkeys(request.groups_names):
            results.append(await self._delete(name))
            await time_slice.yield_if_over()
        return DeleteGroupsResponse(results=results)

    async def _delete(self, name: str) -> DeletableGroupResult:
        try:
            answer = await self._groups.ask(
                name, lambda shard, responder, now: shard.delete_group(name, responder, now)
            )
        except ProtocolError as error:
            return DeletableGroupResult(group_id=name, error_code=error.code)
        assert isinstance(answer, DeletableGroupResult)
        return answer

    @staticmethod
    def error_response(request: DeleteGroupsRequest, version: int, error: ProtocolError) -> DeleteGroupsResponse:
        code = error.code
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
        )
