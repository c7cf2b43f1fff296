"""Who may read and change a node in ZooKeeper: Kafka's rules for `zookeeper.set.acl`; pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.cluster import paths

READ: Final = 1
ALL: Final = 31


class Acl(NamedTuple):
    permissions: int
    scheme: str
    identity: str


OPEN: Final = (Acl(ALL, "world", "anyone"),)
# `auth` stands for whoever the connection has authenticated as.
_CREATOR: Final = Acl(ALL, "auth", "")
_READABLE: Final = Acl(READ, "world", "anyone")
# Credentials and secrets: the passwords of brokers' listeners, SCRAM users, delegation tokens.
_SENSITIVE: Final = (f"{paths.CONFIG}/users", f"{paths.CONFIG}/brokers", "/delegation_token/tokens")


def acls_of(path: str, secure: bool) -> tuple[Acl, ...]:
    """For a node that is created at this path (without the chroot)."""
    # Old consumers, each with an identity of its own, write below this one.
    if not secure or path == paths.CONSUMERS:
        return OPEN
    return (_CREATOR,) if path.startswith(_SENSITIVE) else (_CREATOR, _READABLE)
