"""Requests about rules over the wire, on a whole server, by clients that may and by others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.client.admin import Admin
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE
from braidlog.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from support.acl_requests import AUTHORIZER, LOGINS, creations, deletions, description
from support.in_process_server import open_server
from support.raw import ask
from support.raw_logins import log_in

SETTINGS = {**LOGINS, "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0"}
ONE_SUPER_USER = {**AUTHORIZER, "super.users": "User:root"}
READ = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
INVALID = errors.InvalidRequestError.code
NOT_ALLOWED = errors.ClusterAuthorizationFailedError.code


def with_server(directory: Path, check: Callable[[int, int], None], settings: dict[str, str] | None = None) -> None:
    """`check` gets the open port and the one with logins."""

    async def main() -> None:
        async with open_server(directory, SETTINGS | (ONE_SUPER_USER if settings is None else settings)) as server:
            ports = [listener.port for listener in server.listeners]
            await asyncio.to_thread(check, ports[0], ports[1])

    asyncio.run(asyncio.wait_for(main(), 120))


def admin(port: int, name: str) -> Admin:
    return Admin(
        bootstrap_servers=f"127.0.0.1:{port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=name,
        sasl_password=name[0],
    )


def test_the_life_of_rules_over_a_restart(tmp_path: Path) -> None:
    prefix = READ._replace(resource_name="or", pattern_type=PatternType.PREFIXED)
    denied = READ._replace(permission=Permission.DENY, host="10.0.0.1", operation=AclOperation.ALL)

    def create(_: int, port: int) -> None:
        with admin(port, "root") as root:
            root.create_acls([READ, prefix, denied]).raise_for_errors()
            assert root.describe_acls() == sorted([READ, prefix, denied])
            assert root.describe_acls(AclFilter(resource_name="orders", pattern_type=PatternType.MATCH)) == sorted(
                [READ, prefix, denied]
            )
            assert root.describe_acls(AclFilter(permission=Permission.DENY)) == [denied]

    def remove(_: int, port: int) -> None:
        with admin(port, "root") as root:
            assert root.describe_acls() == sorted([READ, prefix, denied])
            which = AclFilter(pattern_type=PatternType.LITERAL)
            gone = root.delete_acls([which, prefix])
            assert (gone[which], gone[prefix]) == (tuple(sorted([READ, denied])), (prefix,))
            assert root.describe_acls() == []

    with_server(tmp_path, create)
    with_server(tmp_path, remove)


def test_who_may_ask(tmp_path: Path) -> None:
    def check(open_port: int, port: int) -> None:
        def codes(name: str) -> tuple[int, int, int]:
            with log_in(port, name, name[0]) as raw:
                described: Any = raw.ask("DescribeAcls", 3, description())
                created: Any = raw.ask("CreateAcls", 3, creations(READ, READ))
                deleted: Any = raw.ask("DeleteAcls", 3, deletions(AclFilter(AclResourceType.USER)))
                assert len(created.results) == 2
                return described.error_code, created.results[1].error_code, deleted.filter_results[0].error_code

        assert codes("root") == (NONE, NONE, NONE)
        assert codes("ann") == (NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED)
        anonymous: Any = ask(open_port, "DescribeAcls", 3, description())
        assert anonymous.error_code == NOT_ALLOWED
        assert "User:ANONYMOUS may not DESCRIBE the cluster" in anonymous.error_message
        with admin(port, "root") as root:
            # Alter comes with Describe.
            cluster = Acl(AclResourceType.CLUSTER, CLUSTER_NAME, "User:ann", AclOperation.DESCRIBE)
            root.create_acls([cluster]).raise_for_errors()
            assert codes("ann") == (NONE, NOT_ALLOWED, NOT_ALLOWED)
            root.create_acls([cluster._replace(operation=AclOperation.ALTER, principal="User:eve")]).raise_for_errors()
            assert codes("eve") == (NONE, NONE, NONE)
            # Of the next request on a connection that is open.
            with log_in(port, "ann", "a") as raw:
                raw.ask("DescribeAcls", 3, description())
                root.delete_acls([cluster]).raise_for_errors()
                refused: Any = raw.ask("DescribeAcls", 3, description())
                assert refused.error_code == NOT_ALLOWED

    with_server(tmp_path, check)


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    def check(port: int, _: int) -> None:
        for version in range(4):
            described: Any = ask(port, "DescribeAcls", version, _literal(description(), version))
            assert described.error_code == errors.SecurityDisabledError.code
            assert described.error_message == "No Authorizer is configured on the broker"
            created: Any = ask(port, "CreateAcls", version, creations(READ))
            deleted: Any = ask(port, "DeleteAcls", version, _literal_deletion(version))
            for each in (*created.results, *deleted.filter_results):
                assert each.error_code == errors.SecurityDisabledError.code
                assert each.error_message == "No Authorizer is configured."

    with_server(tmp_path, check, {})


def _literal(request: Any, version: int) -> Any:
    """Before version 1 there were no other patterns."""
    if version == 0:
        request.pattern_type_filter = 3
    return request


def _literal_deletion(version: int) -> Any:
    request = deletions(AclFilter())
    _literal(request.filters[0], version)
    return request


@pytest.mark.parametrize("version", range(4))
def test_every_version(tmp_path: Path, version: int) -> None:
    def check(_: int, port: int) -> None:
        with log_in(port, "root", "r") as raw:
            prefixed = READ._replace(pattern_type=PatternType.PREFIXED)
            raw.ask("CreateAcls", 3, creations(prefixed))
            created: Any = raw.ask("CreateAcls", version, creations(READ))
            assert [each.error_code for each in created.results] == [NONE]
            described: Any = raw.ask("DescribeAcls", version, _literal(description(), version))
            assert {each.pattern_type for each in described.resources} == ({3, 4} if version else {3})
            (rule,) = next(each for each in described.resources if each.pattern_type == 3).acls
            assert (rule.principal, rule.host, rule.operation, rule.permission_type) == ("User:ann", "*", 3, 3)
            deleted: Any = raw.ask("DeleteAcls", version, _literal_deletion(version))
            assert len(deleted.filter_results[0].matching_acls) == (2 if version else 1)

    with_server(tmp_path, check)


def test_what_cannot_be_a_rule(tmp_path: Path) -> None:
    wrong: list[Any] = [
        READ._replace(resource_name=""),
        READ._replace(resource_name="a/b"),
        READ._replace(resource_name=".."),
        READ._replace(resource_name="a\nb"),
        READ._replace(resource_type=AclResourceType.CLUSTER),
        READ._replace(resource_type=AclResourceType.ANY),
        READ._replace(resource_type=AclResourceType.UNKNOWN),
        READ._replace(pattern_type=PatternType.MATCH),
        READ._replace(pattern_type=PatternType.UNKNOWN),
        READ._replace(operation=AclOperation.ANY),
        READ._replace(operation=AclOperation.UNKNOWN),
        READ._replace(permission=Permission.ANY),
        READ._replace(permission=Permission.UNKNOWN),
        READ._replace(principal="ann"),
    ]

    def check(_: int, port: int) -> None:
        with log_in(port, "root", "r") as raw:
            request = creations(READ, *wrong, READ)
            answered: Any = raw.ask("CreateAcls", 3, request)
            assert [each.error_code for each in answered.results] == [NONE, *([INVALID] * len(wrong)), NONE]
            assert all(each.error_message for each in answered.results[1:-1])
            described: Any = raw.ask("DescribeAcls", 3, description())
            assert [each.resource_name for each in described.resources] == ["orders"]
            # Numbers that no version knows: 0 is an error, a later one fits nothing.
            request_of_none: Any = description()
            request_of_none.operation = 0
            refused: Any = raw.ask("DescribeAcls", 3, request_of_none)
            assert refused.error_code == INVALID
            request_of_none.operation = 99
            none: Any = raw.ask("DescribeAcls", 3, request_of_none)
            assert (none.error_code, none.resources) == (NONE, [])
            bad: Any = raw.ask("DeleteAcls", 3, deletions(AclFilter(), AclFilter(AclResourceType.UNKNOWN)))
            assert [each.error_code for each in bad.filter_results] == [INVALID, INVALID]
            # Nothing was deleted.
            assert len(raw.ask("DescribeAcls", 3, description()).resources) == 1  # type: ignore[attr-defined]

    with_server(tmp_path, check)
