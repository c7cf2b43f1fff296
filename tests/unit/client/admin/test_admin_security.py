"""Access control, quotas, SCRAM users and tokens as they are put into requests and read from answers."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from braidlog.client.admin import acls, delegation_tokens, quotas, scram
from braidlog.client.admin.acl_operations import AclOperation
from braidlog.client.admin.acls import Acl, AclCalls, AclFilter, AclResourceType, PatternType, Permission
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.delegation_tokens import DelegationTokenCalls, Principal
from braidlog.client.admin.quotas import ANYBODY, DEFAULT, QuotaCalls, QuotaEntity, QuotaFilter
from braidlog.client.admin.scram import ScramCalls, ScramDeletion, ScramMechanism, ScramUpsertion
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    SecurityDisabledError,
    UnsupportedVersionError,
)
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from braidlog.wire.generated.create_acls import AclCreationResult, CreateAclsResponse
from braidlog.wire.generated.create_delegation_token import CreateDelegationTokenResponse
from braidlog.wire.generated.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from braidlog.wire.generated.describe_acls import DescribeAclsResponse
from braidlog.wire.generated.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from support.admin_fakes import ScriptedCluster, ScriptedNode

RULE = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)


def driver(api_key: int, answer: Any, version: int | None = None) -> tuple[AdminApiDriver, ScriptedNode]:
    versions = {} if version is None else {api_key: version}
    node = ScriptedNode({api_key: lambda request: answer(request) if callable(answer) else answer}, versions)
    return AdminApiDriver(ScriptedCluster({1: node})), node


def test_each_rule_has_its_own_answer() -> None:
    answer = CreateAclsResponse(results=[AclCreationResult(), AclCreationResult(error_code=31)])
    where, node = driver(acls.CREATE_ACLS, answer)
    prefixed = RULE._replace(pattern_type=PatternType.PREFIXED, permission=Permission.DENY, host="::1")
    created = AclCalls(where).create_acls([RULE, prefixed])
    assert created[RULE] is None
    assert isinstance(created.errors[prefixed], ClusterAuthorizationFailedError)
    assert "deny User:ann read topic orders" in str(created.errors[prefixed])
    first, second = node.asked[0].creations
    assert (first.resource_type, first.resource_pattern_type, first.permission_type, first.host) == (2, 3, 3, "*")
    assert (second.resource_pattern_type, second.permission_type, second.host) == (4, 2, "::1")


def test_prefixes_are_too_new_for_old_brokers() -> None:
    where, _ = driver(acls.CREATE_ACLS, CreateAclsResponse(), version=0)
    with pytest.raises(UnsupportedVersionError):
        AclCalls(where).create_acls([RULE._replace(pattern_type=PatternType.PREFIXED)])


def test_a_cluster_without_an_authorizer_says_so() -> None:
    where, node = driver(acls.DESCRIBE_ACLS, DescribeAclsResponse(error_code=54, error_message=None))
    with pytest.raises(SecurityDisabledError, match=r"has no authorizer; set authorizer\.class\.name"):
        AclCalls(where).describe_acls()
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
    where, _ = driver(acls.DELETE_ACLS, answer)
    everything = AclFilter()
    deleted = AclCalls(where).delete_acls([RULE, everything])
    assert deleted[RULE] == (RULE,)
    assert isinstance(deleted.errors[everything], ClusterAuthorizationFailedError)


def test_quotas_of_defaults_and_of_nobody_in_particular() -> None:
    entity = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="app")]
    answer = DescribeClientQuotasResponse(
        entries=[EntryData(entity=entity, values=[ValueData(key="producer_byte_rate", value=5.0)])]
    )
    where, node = driver(quotas.DESCRIBE_CLIENT_QUOTAS, answer)
    found = QuotaCalls(where).describe_client_quotas(
        QuotaFilter(user=DEFAULT, client_id="app", ip=ANYBODY, strict=True)
    )
    assert found == {QuotaEntity(user=DEFAULT, client_id="app"): {"producer_byte_rate": 5.0}}
    (request,) = node.asked
    assert request.strict
    assert [(each.entity_type, each.match_type, each.match) for each in request.components] == [
        ("user", 1, None),
        ("client-id", 0, "app"),
        ("ip", 2, None),
    ]


def test_quotas_are_set_and_taken_away() -> None:
    answer = AlterClientQuotasResponse(
        entries=[ResponseEntryData(entity=[ResponseEntityData(entity_type="user", entity_name=None)])]
    )
    where, node = driver(quotas.ALTER_CLIENT_QUOTAS, answer)
    everybody = QuotaEntity(user=DEFAULT)
    assert QuotaCalls(where).alter_client_quotas({everybody: {"a": 1.5, "b": None}}) == {everybody: None}
    (entry,) = node.asked[0].entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", None)]
    assert [(each.key, each.value, each.remove) for each in entry.ops] == [("a", 1.5, False), ("b", 0.0, True)]
    assert str(QuotaEntity(user=DEFAULT, client_id="app")) == "user (default), client-id app"
    with pytest.raises(UserError, match="nothing to change"):
        QuotaCalls(where).alter_client_quotas({everybody: {}})


def test_no_password_travels() -> None:
    def answer(request: Any) -> AlterUserScramCredentialsResponse:
        users = sorted({each.name for each in (*request.upsertions, *request.deletions)})
        return AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user=user) for user in users])

    where, node = driver(scram.ALTER_USER_SCRAM_CREDENTIALS, answer)
    changed = ScramCalls(where).alter_scram_users(
        [
            ScramUpsertion("ann", "pencil", ScramMechanism.SCRAM_SHA_256, 4096, b"salt"),
            ScramUpsertion("ann", "pencil"),
            ScramDeletion("bob", ScramMechanism.SCRAM_SHA_256),
        ]
    )
    assert changed == {"ann": None, "bob": None}
    (request,) = node.asked
    weak, strong = request.upsertions
    assert weak.salted_password == hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    assert len(strong.salt) >= 16
    assert strong.salted_password == hashlib.pbkdf2_hmac("sha512", b"pencil", strong.salt, 4096)
    assert [(each.name, each.mechanism) for each in request.deletions] == [("bob", 1)]


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (ScramUpsertion("ann", ""), "a password has"),
        (ScramUpsertion("", "p"), "a user's name has"),
        (ScramUpsertion("ann", "p", iterations=4095), "between 4096 and 16384"),
        (ScramUpsertion("ann", "p", iterations=16385), "between 4096 and 16384"),
        (ScramDeletion("ann", ScramMechanism.UNKNOWN), "SCRAM_SHA_256 or SCRAM_SHA_512"),
    ],
)
def test_credentials_that_brokers_would_refuse(change: ScramUpsertion | ScramDeletion, reported: str) -> None:
    where, node = driver(scram.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsResponse())
    with pytest.raises(UserError, match=reported):
        ScramCalls(where).alter_scram_users([change])
    assert node.asked == []


@pytest.mark.parametrize(("version", "owner"), [(2, ""), (3, None)])
def test_a_token_is_the_callers_unless_an_owner_is_named(version: int, owner: str | None) -> None:
    answer = CreateDelegationTokenResponse(principal_type="User", principal_name="ann", token_id="t", hmac=b"h")
    where, node = driver(delegation_tokens.CREATE_DELEGATION_TOKEN, answer, version)
    token = DelegationTokenCalls(where).create_delegation_token(renewers=[Principal.parse("User:bob")])
    assert token.owner == token.requester == Principal("User", "ann")
    assert node.asked[0].owner_principal_name == owner
    assert "hmac" not in repr(token)
    with pytest.raises(UserError, match="TYPE:NAME"):
        Principal.parse("ann")
