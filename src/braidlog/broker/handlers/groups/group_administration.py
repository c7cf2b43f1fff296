"""Groups as administrators see them: DescribeGroups, ConsumerGroupDescribe, DeleteGroups."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.broker.authorization.authorizer import Authorizer, refusal
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    ProtocolError,
    UnsupportedVersionError,
)
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from braidlog.wire.generated.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from braidlog.wire.generated.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from braidlog.wire.generated.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

DEAD = "Dead"
SAYS_NOT_FOUND_FROM = 6


class DescribeGroupsHandler:
    """DescribeGroups (api 15): classic groups with their members.

    v3   what the client may do with the group    v6   a group that is not there is an error, no longer "Dead"
    """

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    async def handle(self, request: DescribeGroupsRequest, exchange: Exchange) -> DescribeGroupsResponse:
        time_slice = TimeSlice()
        # A group that is named again is described once: it may have many members.
        names = dict.fromkeys(request.groups)
        operation, resource = AclOperation.DESCRIBE, AclResourceType.GROUP
        allowed = await self._authorizer.allowed_in_slices(exchange, operation, resource, names)
        groups = [
            _failed_group(name, exchange.version, refusal(exchange, operation, resource, name))
            for name in names
            if name not in allowed
        ]
        for group_id in names:
            if group_id not in allowed:
                continue
            group = await self._describe(group_id, exchange.version)
            if request.include_authorized_operations and group.error_code in (0, GroupIdNotFoundError.code):
                group.authorized_operations = self._authorizer.authorized_operations(exchange, resource, group_id)
            groups.append(group)
            await time_slice.yield_if_over()
        return DescribeGroupsResponse(groups=groups)

    async def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            answer = await self._groups.ask(
                group_id, lambda shard, responder, now: shard.describe_group(group_id, responder, now)
            )
        except GroupIdNotFoundError as error:
            if version >= SAYS_NOT_FOUND_FROM:
                return _failed_group(group_id, version, error, DEAD)
            return DescribedGroup(group_id=group_id, group_state=DEAD)
        except ProtocolError as error:
            return _failed_group(group_id, version, error)
        assert isinstance(answer, DescribedGroup)
        return answer

    @staticmethod
    def error_response(request: DescribeGroupsRequest, version: int, error: ProtocolError) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[_failed_group(group_id, version, error) for group_id in request.groups])


def _failed_group(group_id: str, version: int, error: ProtocolError, state: str = "") -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=error.code,
        error_message=error.message if version >= SAYS_NOT_FOUND_FROM else None,
        group_state=state,
    )


class ConsumerGroupDescribeHandler:
    """ConsumerGroupDescribe (api 69): groups whose partitions the broker assigns, with their members.

    v1   which protocol each member speaks
    """

    def __init__(
        self,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        authorizer: Authorizer,
        serves_protocol: Callable[[], bool] = lambda: True,
    ) -> None:
        self._groups = groups
        self._authorizer = authorizer
        self._serves_protocol = serves_protocol

    async def handle(self, request: ConsumerGroupDescribeRequest, exchange: Exchange) -> ConsumerGroupDescribeResponse:
        if not self._serves_protocol():
            raise UnsupportedVersionError("the consumer group protocol is off in this cluster (feature group.version)")
        time_slice = TimeSlice()
        # A group that is named again is described once: it may have many members.
        names = dict.fromkeys(request.group_ids)
        operation, resource = AclOperation.DESCRIBE, AclResourceType.GROUP
        allowed = await self._authorizer.allowed_in_slices(exchange, operation, resource, names)
        groups = [
            _failed_consumer_group(name, refusal(exchange, operation, resource, name))
            for name in names
            if name not in allowed
        ]
        for group_id in names:
            if group_id not in allowed:
                continue
            group = await self._describe(group_id)
            if request.include_authorized_operations and group.error_code == 0:
                group.authorized_operations = self._authorizer.authorized_operations(exchange, resource, group_id)
            groups.append(group)
            await time_slice.yield_if_over()
        return ConsumerGroupDescribeResponse(groups=groups)

    async def _describe(self, group_id: str) -> DescribedConsumerGroup:
        try:
            if not group_id:
                raise InvalidGroupIdError("the id of a group must not be empty")
            answer = await self._groups.ask(
                group_id, lambda shard, responder, now: shard.describe_consumer_group(group_id, responder, now)
            )
        except ProtocolError as error:
            return _failed_consumer_group(group_id, error)
        assert isinstance(answer, DescribedConsumerGroup)
        return answer

    @staticmethod
    def error_response(
        request: ConsumerGroupDescribeRequest, version: int, error: ProtocolError
    ) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[_failed_consumer_group(group_id, error) for group_id in request.group_ids]
        )


def _failed_consumer_group(group_id: str, error: ProtocolError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)


class DeleteGroupsHandler:
    """DeleteGroups (api 42): groups without members, with all their offsets."""

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinatorShard], authorizer: Authorizer) -> None:
        self._groups = groups
        self._authorizer = authorizer

    async def handle(self, request: DeleteGroupsRequest, exchange: Exchange) -> DeleteGroupsResponse:
        # Named twice, a group would not be there the second time.
        time_slice = TimeSlice()
        results: list[DeletableGroupResult] = []
        refused: list[DeletableGroupResult] = []
        names = dict.fromkeys(request.groups_names)
        allowed = await self._authorizer.allowed_in_slices(exchange, AclOperation.DELETE, AclResourceType.GROUP, names)
        for name in names:
            if name in allowed:
                results.append(await self._delete(name))
            else:
                refused.append(DeletableGroupResult(group_id=name, error_code=GroupAuthorizationFailedError.code))
            await time_slice.yield_if_over()
        return DeleteGroupsResponse(results=results + refused)

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
