from __future__ import annotations

import pytest

from braidlog.cluster.zookeeper.acls import ALL, OPEN, READ, Acl, acls_of

CREATOR = Acl(ALL, "auth", "")


@pytest.mark.parametrize(
    "path",
    [
        "/config/users",
        "/config/users/alice",
        "/config/brokers/1",
        "/delegation_token/tokens",
        "/delegation_token/tokens/t",
    ],
)
def test_secrets_are_for_their_creator_alone(path: str) -> None:
    assert acls_of(path, secure=True) == (CREATOR,)


@pytest.mark.parametrize(
    "path", ["/brokers", "/controller", "/config/topics/t", "/delegation_token", "/consumers/group"]
)
def test_all_else_may_be_read(path: str) -> None:
    assert acls_of(path, secure=True) == (CREATOR, Acl(READ, "world", "anyone"))


def test_old_consumers_may_write_their_own_nodes() -> None:
    assert acls_of("/consumers", secure=True) == OPEN


def test_without_the_setting_everything_is_open() -> None:
    assert acls_of("/config/users", secure=False) == OPEN == (Acl(ALL, "world", "anyone"),)
