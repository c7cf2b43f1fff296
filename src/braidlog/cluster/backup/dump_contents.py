"""Which nodes a dump holds, what of them is secret, and what they come to.

A dump leaves out what only means something to brokers that run: ephemeral nodes, and notifications, whose numbers a new
tree counts from zero. Nodes beside Kafka's own belong to somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from braidlog.cluster import paths, records
from braidlog.cluster.records import BadRecordError
from braidlog.config.known import broker_setting_for

_NOTIFICATIONS: Final = frozenset(
    (
        paths.CONFIG_CHANGES,
        paths.ISR_CHANGES,
        paths.LOG_DIR_EVENTS,
        paths.TOKEN_CHANGES,
        paths.LITERAL_ACL_CHANGES,
        paths.PREFIXED_ACL_CHANGES,
    )
)
_USERS: Final = f"{paths.CONFIG}/users/"
_BROKERS: Final = f"{paths.CONFIG}/brokers/"
_CLIENTS: Final = "/clients/"
_SCRAM: Final = "SCRAM-"


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def is_kafkas(path: str) -> bool:
    """Whether the node lies where Kafka puts its own."""
    return path[1:].partition("/")[0] in paths.ROOTS


def is_notification(path: str) -> bool:
    return parent_of(path) in _NOTIFICATIONS


def is_ephemeral_place(path: str) -> bool:
    """Where only ephemeral nodes belong: a persistent one would keep a broker from registering."""
    return path == paths.CONTROLLER or parent_of(path) == paths.BROKER_IDS


def without_secrets(path: str, data: bytes) -> tuple[bytes | None, int]:
    """The node without credentials, tokens and passwords, and how many those were; None where nothing is left."""
    if parent_of(path) == paths.DELEGATION_TOKENS:
        return None, 1
    if path.startswith(_USERS) and _CLIENTS not in path:
        is_secret = _is_credential
    elif path.startswith(_BROKERS):
        is_secret = _is_sensitive
    else:
        return data, 0
    try:
        overrides = records.decode_config(path, data)
    except BadRecordError:
        # Whatever is in it: nobody can say that it is no secret. The node stays, as it may have children.
        return b"", 1
    kept = {key: value for key, value in overrides.items() if not is_secret(key)}
    if len(kept) == len(overrides):
        return data, 0
    return records.encode_config(kept), len(overrides) - len(kept)


def _is_credential(key: str) -> bool:
    return key.startswith(_SCRAM)


def _is_sensitive(key: str) -> bool:
    """An unknown setting may be a misspelt password."""
    setting = broker_setting_for(key)
    return setting is None or setting.sensitive


@dataclass
class Contents:
    """What a tree comes to, for people."""

    nodes: int = 0
    topics: int = 0
    partitions: int = 0
    configs: int = 0
    users: int = 0
    acls: int = 0
    tokens: int = 0

    def count(self, path: str) -> None:
        self.nodes += 1
        names = path[1:].split("/")
        match names:
            case ["brokers", "topics", _]:
                self.topics += 1
            case ["brokers", "topics", _, "partitions", _, "state"]:
                self.partitions += 1
            case ["config", "users", _]:
                self.users += 1
            case ["config", kind, _] if kind != "changes":
                self.configs += 1
            case ["kafka-acl", _, _] | ["kafka-acl-extended", "prefixed", _, _]:
                self.acls += 1
            case ["delegation_token", "tokens", _]:
                self.tokens += 1
            case _:
                pass

    def __str__(self) -> str:
        return (
            f"{self.nodes} nodes: {self.topics} topics with {self.partitions} partitions, {self.configs} configs, "
            f"{self.users} users, ACLs of {self.acls} resources, {self.tokens} delegation tokens"
        )


@dataclass
class LeftOut:
    ephemerals: int = 0
    notifications: int = 0
    secrets: int = 0

    def __str__(self) -> str:
        return f"{self.ephemerals} ephemeral nodes, {self.notifications} notifications, {self.secrets} secrets"
