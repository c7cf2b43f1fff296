"""Access control as it is put into requests and read from answers."""

from __future__ import annotations

import pytest

from braidlog.client.admin import acls
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    SecurityDisabledError,
    UnsupportedVersionError,
)
from braidlog.security.acls import Acl, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from braidlog.wire.generated.create_acls import AclCreationResult, CreateAclsResponse
from braidlog.wire.generated.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from braidlog.wire.generated.describe_acls import DescribeAclsResponse
from support.admin_fakes import asking

RULE = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)


def test_each_rule_has_its_own_answer() -> None:
    answer = CreateAclsResponse(results=[AclCreationResult(), AclCreationResult(error_code=31)])
    admin, node = asking({acls.CREATE_ACLS: answer})
    prefixed = RULE._replace(pattern_type=PatternType.PREFIXED, permission=Permission.DENY, host="::1")
    created = admin.create_acls([RULE, prefixed])
    assert created[RULE] is None
    assert isinstance(created.errors[prefixed], ClusterAuthorizationFailedError)
    assert "deny User:ann read topic orders" in str(created.errors[prefixed])
    first, second = node.asked[0].creations
    assert (first.resource_type, first.resource_pattern_type, first.permission_type, first.host) == (2, 3, 3, "*")
    assert (second.resource_pattern_type, second.permission_type, second.host) == (4, 2, "::1")


def test_prefixes_are_too_new_for_old_brokers() -> None:
    admin, _ = asking({acls.CREATE_ACLS: CreateAclsResponse()}, {acls.CREATE_ACLS: 0})
    with pytest.raises(UnsupportedVersionError):
        admin.create_acls([RULE._replace(pattern_type=PatternType.PREFIXED)])


def test_a_cluster_without_an_authorizer_says_so() -> None:
    admin, node = asking({acls.DESCRIBE_ACLS: DescribeAclsResponse(error_code=54, error_message=None)})
    with pytest.raises(SecurityDisabledError, match=r"has no authorizer; set authorizer\.class\.name"):
        admin.describe_acls()
    (request,) = node.asked
    assert (request.resource_type_filter, request.resource_name_filter, request.pattern_type_filter) == (1, None, 1)
    assert (request.principal_filter, request.host_filter, request.operation, request.permission_type) == (
        None,
        None,
        1,
        1,
    )


def test_rules_deleted_by_filter() -> None:
    gone = DeleteAclsMatchingAcl(
        resource_type=2, resource_name="orders", principal="User:ann", host="*", operation=3, permission_type=3
    )
    stuck = DeleteAclsMatchingAcl(
        error_code=31, resource_type=2, resource_name="orders", operation=3, permission_type=3
    )
    answer = DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(matching_acls=[gone]),
            DeleteAclsFilterResult(matching_acls=[gone, stuck]),
        ]
    )
    admin, _ = asking({acls.DELETE_ACLS: answer})
    everything = AclFilter()
    deleted = admin.delete_acls([RULE, everything])
    assert deleted[RULE] == (RULE,)
    assert isinstance(deleted.errors[everything], ClusterAuthorizationFailedError)
