"""Access control: who may do what to which resources (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, listed
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.security.acls import CLUSTER_NAME as CLUSTER_NAME
from braidlog.security.acls import Acl, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from braidlog.wire.generated.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from braidlog.wire.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from braidlog.wire.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse

DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31


def create_acls(driver: AdminApiDriver, acls: Many[Acl]) -> Results[Acl, None]:
    wanted = listed(acls, "acls")
    for acl in wanted:
        _check_rule(acl)

    async def create(node: BrokerConnection, some: list[Acl]) -> dict[Acl, ProtocolError | None]:
        request = CreateAclsRequest(creations=[_creation(acl) for acl in some])
        answered = (await node.call(CREATE_ACLS, request, CreateAclsResponse)).results
        return {
            acl: None if each.error_code == NONE else broker_error(each.error_code, _named(acl), each.error_message)
            for acl, each in zip(some, answered, strict=False)
        }

    return driver.ask(wanted, ControllerStrategy(), create)


def describe_acls(driver: AdminApiDriver, which: AclFilter | None = None) -> list[Acl]:
    wanted = which or AclFilter()
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )

    async def describe(node: BrokerConnection) -> list[Acl]:
        answer = await node.call(DESCRIBE_ACLS, request, DescribeAclsResponse)
        check(answer.error_code, "access control", answer.error_message)
        return sorted(
            Acl(
                resource_type=AclResourceType(resource.resource_type),
                resource_name=resource.resource_name,
                principal=each.principal,
                operation=AclOperation(each.operation),
                permission=Permission(each.permission_type),
                host=each.host,
                pattern_type=PatternType(resource.pattern_type),
            )
            for resource in answer.resources
            for each in resource.acls
        )

    return driver.ask_one(AnyBrokerStrategy(), describe)


def delete_acls(driver: AdminApiDriver, filters: Many[AclFilter | Acl]) -> Results[AclFilter | Acl, tuple[Acl, ...]]:
    async def delete(
        node: BrokerConnection, some: list[AclFilter | Acl]
    ) -> dict[AclFilter | Acl, tuple[Acl, ...] | ProtocolError]:
        request = DeleteAclsRequest(filters=[_deletion(each) for each in some])
        found: dict[AclFilter | Acl, tuple[Acl, ...] | ProtocolError] = {}
        answers = (await node.call(DELETE_ACLS, request, DeleteAclsResponse)).filter_results
        for item, answer in zip(some, answers, strict=False):
            failed = [each for each in answer.matching_acls if each.error_code != NONE]
            if answer.error_code != NONE:
                found[item] = broker_error(answer.error_code, f"{item}", answer.error_message)
            elif failed:
                found[item] = broker_error(failed[0].error_code, _named(_gone(failed[0])), failed[0].error_message)
            else:
                found[item] = tuple(sorted(_gone(each) for each in answer.matching_acls))
        return found

    return driver.ask(listed(filters, "filters"), ControllerStrategy(), delete)


def _check_rule(acl: Acl) -> None:
    """What only a filter may say."""
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise UserError(f"{acl}: a rule is about one type of resource; name it")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UserError(f"{acl}: a rule's pattern is LITERAL or PREFIXED")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise UserError(f"{acl}: a rule is about one operation, or ALL of them")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise UserError(f"{acl}: a rule says ALLOW or DENY")
    if ":" not in acl.principal:
        raise UserError(f"{acl}: a principal has a type, such as User:{acl.principal or 'alice'}")


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _deletion(which: AclFilter | Acl) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=which.resource_type,
        resource_name_filter=which.resource_name,
        pattern_type_filter=which.pattern_type,
        principal_filter=which.principal,
        host_filter=which.host,
        operation=which.operation,
        permission_type=which.permission,
    )


def _gone(each: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        resource_type=AclResourceType(each.resource_type),
        resource_name=each.resource_name,
        principal=each.principal,
        operation=AclOperation(each.operation),
        permission=Permission(each.permission_type),
        host=each.host,
        pattern_type=PatternType(each.pattern_type),
    )


def _named(acl: Acl) -> str:
    kind = acl.resource_type.name.lower().replace("_", " ")
    return f"{acl.permission.name.lower()} {acl.principal} {acl.operation.name.lower()} {kind} {acl.resource_name}"
