"""Requests about rules of access, and their answers as plain values in an order of their own."""

from __future__ import annotations

from typing import Any

from braidlog.security.acls import Acl, AclFilter
from braidlog.wire.generated.create_acls import AclCreation, CreateAclsRequest
from braidlog.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from braidlog.wire.generated.describe_acls import DescribeAclsRequest
from support.raw import RawConnection

# Listeners that let everybody in, and one on which users log in; who is let in by the first may do everything.
LOGINS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_root="r" user_ann="a" user_eve="e";'
    ),
    "connection.failed.authentication.delay.ms": "1",
}
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}


def creations(*acls: Acl) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )


def description(which: AclFilter | Acl | None = None) -> DescribeAclsRequest:
    wanted = which or AclFilter()
    return DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def deletions(*filters: AclFilter | Acl) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource_name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )


def create(raw: RawConnection, *acls: Acl) -> list[int]:
    """The error code of each."""
    answered: Any = raw.ask("CreateAcls", 3, creations(*acls))
    return [each.error_code for each in answered.results]


def describe(raw: RawConnection, which: AclFilter | None = None) -> tuple[int, list[tuple[Any, ...]]]:
    """The error code, and what there is, sorted."""
    answered: Any = raw.ask("DescribeAcls", 3, description(which))
    found = [
        (resource.resource_type, resource.resource_name, each.principal, each.operation, each.permission_type,
         each.host, resource.pattern_type)
        for resource in answered.resources
        for each in resource.acls
    ]  # fmt: skip
    return answered.error_code, sorted(found)


def delete(raw: RawConnection, *filters: AclFilter | Acl) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """By filter its error code, and what is gone, sorted."""
    answered: Any = raw.ask("DeleteAcls", 3, deletions(*filters))
    return [
        (
            result.error_code,
            sorted(
                (each.resource_type, each.resource_name, each.principal, each.operation, each.permission_type,
                 each.host, each.pattern_type)
                for each in result.matching_acls
            ),
        )
        for result in answered.filter_results
    ]  # fmt: skip
