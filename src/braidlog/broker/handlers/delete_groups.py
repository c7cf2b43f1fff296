"""DeleteGroups (api 42): groups without members, with all their offsets."""

from __future__ import annotations

from braidlog.broker.slices import Pace
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.runtime import Coordinator
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


class DeleteGroupsHandler:
    def __init__(self, groups: Coordinator[GroupShard]) -> None:
        self._groups = groups

    async def handle(self, request: DeleteGroupsRequest, exchange: Exchange) -> DeleteGroupsResponse:
        # Named twice, a group would not be there the second time.
        pace = Pace()
        results: list[DeletableGroupResult] = []
        for name in dict.fromkeys(request.groups_names):
            results.append(await self._delete(name))
            await pace.rest_if_due()
        return DeleteGroupsResponse(results=results)

    async def _delete(self, name: str) -> DeletableGroupResult:
        try:
            answer = await self._groups.ask(name, lambda shard, ticket, now: shard.delete_group(name, ticket, now))
        except ProtocolError as error:
            return DeletableGroupResult(group_id=name, error_code=error.code)
        assert isinstance(answer, DeletableGroupResult)
        return answer


def refuse(request: DeleteGroupsRequest, version: int, error: ProtocolError) -> DeleteGroupsResponse:
    code = error.code
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    )
