"""DescribeAcls, CreateAcls and DeleteAcls (apis 29 to 31, KIP-140, KIP-290): rules of access, written by any broker.

What this broker decides after its answer is by the new rules; other brokers follow within moments.

Kafka answers with UNKNOWN_SERVER_ERROR what its ZooKeeper client refuses, and closes the connection on types that are
0; here both are INVALID_REQUEST with the reason.
"""

from __future__ import annotations

from collections.abc import Generator

from braidlog.broker.authorization.acl_records import is_name
from braidlog.broker.authorization.acl_store import AclStore
from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.core.protocol_errors import (
    NONE,
    InvalidRequestError,
    ProtocolError,
    SecurityDisabledError,
)
from braidlog.net.exchange import Exchange
from braidlog.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from braidlog.wire.generated.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from braidlog.wire.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from braidlog.wire.generated.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class DescribeAclsHandler:
    def __init__(self, acls: AclStore | None, authorizer: Authorizer) -> None:
        self._acls = acls
        self._authorizer = authorizer

    def handle(self, request: DescribeAclsRequest, exchange: Exchange) -> Generator[None, None, DescribeAclsResponse]:
        self._authorizer.check_cluster(exchange, AclOperation.DESCRIBE)
        if self._acls is None:
            raise SecurityDisabledError("No Authorizer is configured on the broker")
        which = _filter(request)
        resources: list[DescribeAclsResource] = []
        rules = self._acls.rules
        for pattern in rules.patterns():
            yield
            if not which.matches_pattern(pattern):
                continue
            found = [_described(acl) for acl in rules.about(pattern) if which.matches(acl)]
            if found:
                resources.append(
                    DescribeAclsResource(
                        resource_type=pattern.resource_type,
                        resource_name=pattern.name,
                        pattern_type=pattern.pattern_type,
                        acls=found,
                    )
                )
        return DescribeAclsResponse(resources=resources)

    @staticmethod
    def error_response(request: DescribeAclsRequest, version: int, error: ProtocolError) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message, resources=[])


class CreateAclsHandler:
    def __init__(self, acls: AclStore | None, authorizer: Authorizer) -> None:
        self._acls = acls
        self._authorizer = authorizer

    async def handle(self, request: CreateAclsRequest, exchange: Exchange) -> CreateAclsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        if self._acls is None:
            raise SecurityDisabledError("No Authorizer is configured.")
        wanted: list[Acl | ProtocolError] = []
        for creation in request.creations:
            try:
                wanted.append(_rule(creation))
            except ProtocolError as error:
                wanted.append(error)
        good = [each for each in wanted if isinstance(each, Acl)]
        outcomes = iter(await self._acls.create(good) if good else ())
        return CreateAclsResponse(
            results=[_created(next(outcomes) if isinstance(each, Acl) else each) for each in wanted]
        )

    @staticmethod
    def error_response(request: CreateAclsRequest, version: int, error: ProtocolError) -> CreateAclsResponse:
        return CreateAclsResponse(results=[_created(error) for _ in request.creations])


class DeleteAclsHandler:
    def __init__(self, acls: AclStore | None, authorizer: Authorizer) -> None:
        self._acls = acls
        self._authorizer = authorizer

    async def handle(self, request: DeleteAclsRequest, exchange: Exchange) -> DeleteAclsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        if self._acls is None:
            raise SecurityDisabledError("No Authorizer is configured.")
        found = await self._acls.delete([_filter(each) for each in request.filters])
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(
                    error_message=None, matching_acls=[_deleted(acl, error) for acl, error in sorted(each.items())]
                )
                for each in found
            ]
        )

    @staticmethod
    def error_response(request: DeleteAclsRequest, version: int, error: ProtocolError) -> DeleteAclsResponse:
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[])
                for _ in request.filters
            ]
        )


def _filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """A number that only a later version knows fits nothing; 0 is what no client means."""
    if 0 in (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ):
        raise InvalidRequestError("a filter has no UNKNOWN (0) types; ANY (1) fits everything")
    return AclFilter(
        resource_type=AclResourceType(request.resource_type_filter),
        resource_name=request.resource_name_filter,
        principal=request.principal_filter,
        operation=AclOperation(request.operation),
        permission=Permission(request.permission_type),
        host=request.host_filter,
        pattern_type=PatternType(request.pattern_type_filter),
    )


def _rule(creation: AclCreation) -> Acl:
    """Raises InvalidRequestError for what cannot be a rule."""
    acl = Acl(
        resource_type=AclResourceType(creation.resource_type),
        resource_name=creation.resource_name,
        principal=creation.principal,
        operation=AclOperation(creation.operation),
        permission=Permission(creation.permission_type),
        host=creation.host,
        pattern_type=PatternType(creation.resource_pattern_type),
    )
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise InvalidRequestError("Invalid empty resource name")
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise InvalidRequestError("Failed to create ACL: it is about no type of resource")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequestError("Failed to create ACL: its pattern type is neither LITERAL nor PREFIXED")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise InvalidRequestError("Failed to create ACL: it is about no operation")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequestError("Failed to create ACL: its permission is neither ALLOW nor DENY")
    if not is_name(acl.resource_name):
        raise InvalidRequestError(
            "Failed to create ACL: a resource's name has no slash and no control characters, and is neither . nor .."
        )
    if ":" not in acl.principal:
        raise InvalidRequestError("Failed to create ACL: a principal has a type, such as User:alice")
    return acl


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )


def _created(error: ProtocolError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=NONE)
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _deleted(acl: Acl, error: ProtocolError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
