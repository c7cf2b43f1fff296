"""ListGroups (api 16): every group that this broker coordinates. v4 only those in some states, v5 of some types."""

from __future__ import annotations

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, NotCoordinatorError, ProtocolError
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.security.acls import CLUSTER_RESOURCE, AclOperation, AclResourceType
from braidlog.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse


class ListGroupsHandler:
    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    async def handle(self, request: ListGroupsRequest, exchange: Exchange) -> ListGroupsResponse:
        if self._groups.loading_partitions():
            raise CoordinatorLoadInProgressError("groups are being loaded; try again")
        # Who may describe the cluster sees all groups, and so do brokers, which hold their records; others see those
        # that they may describe.
        sees_all = any(
            self._authorizer.authorize(exchange, operation, *CLUSTER_RESOURCE, log_if_denied=False)
            for operation in (AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION)
        )
        response = ListGroupsResponse()
        time_slice = TimeSlice()
        for partition in self._groups.active_partitions():
            await time_slice.yield_if_over()
            try:
                answer = await self._groups.ask(
                    partition, lambda shard, responder, now: shard.list_groups(request, responder, now)
                )
            except NotCoordinatorError:
                continue  # moved on meanwhile: its new coordinator lists them
            assert isinstance(answer, ListGroupsResponse)
            for group in answer.groups:
                if sees_all or self._authorizer.authorize(
                    exchange, AclOperation.DESCRIBE, AclResourceType.GROUP, group.group_id, log_if_denied=False
                ):
                    response.groups.append(group)
        return response

    @staticmethod
    def error_response(request: ListGroupsRequest, version: int, error: ProtocolError) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=error.code)
