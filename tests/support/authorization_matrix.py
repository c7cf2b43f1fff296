"""Every api in every situation of rules: what is asked, as whom, by which rules, and what is compared of the answer.

    none                    no rule, and rules for somebody else
    allow
    deny                    against a rule that allows
    wrong host              a rule for another host
    anonymous               who has not logged in, by another's rules, and by rules for `User:*`
    super user              without a rule, and with one that denies

each of them by rules for the very name, for a prefix of it and for `*`; and where an api asks for more than one right,
with all but one of them.

The table of probes is `authorization_probes.py`. It says once what each api answers to who may and who may not; Kafka
3.9 has given these answers, and `tests/interop/test_authorization_matrix.py` asks it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from tools.protocol.generate import schemas
from tools.protocol.model import Schema

from braidlog.core.protocol_errors import ProtocolError
from braidlog.security.acls import (
    AUTHORIZED_OPERATIONS_OMITTED,
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    operations_of,
)
from braidlog.wire.apis import APIS, api_by_name
from braidlog.wire.message import Message
from support.raw import as_plain

ALICE: Final = "alice"
ADMIN: Final = "admin"
ANONYMOUS: Final = "ANONYMOUS"
OTHER_HOST: Final = "192.0.2.7"
SOMEBODY_ELSE: Final = "bob"
PATTERNS: Final = ("literal", "prefixed", "wildcard")
OK: Final = "OK"

_NAMES: Final = {error.code: error.name for error in ProtocolError.__subclasses__()}
# What items of a list are told apart by.
_IDENTITIES: Final = (
    "name", "topic", "topic_name", "group_id", "transactional_id", "key", "user", "resource_name", "principal_name",
    "partition_index", "partition", "index", "partition_id",
)  # fmt: skip
# Lists that say nothing about access.
_IGNORED: Final = ("brokers", "configs", "renewers", "members", "active_producers", "record_errors", "api_keys")


class Right(NamedTuple):
    type: AclResourceType
    name: str
    operation: AclOperation


@dataclass
class World:
    """What only the broker that is asked knows."""

    host: str = "127.0.0.1"
    topic_id: bytes = bytes(16)
    token_id: str = ""
    hmac: bytes = b""


@dataclass(frozen=True)
class Probe:
    """`request` has plain values, as JSON would; `missing` is what is answered where all rights but one are there."""

    api: str
    version: int
    request: Mapping[str, Any] | Callable[[World], Mapping[str, Any]]
    rights: tuple[Right, ...] | Callable[[World], tuple[Right, ...]]
    allowed: str
    refused: str
    missing: Mapping[int, str] = field(default_factory=dict)
    # Where they differ from `allowed` and `refused`; the second is also for `User:*`.
    super_user: str | None = None
    anonymous: str | None = None
    # What to call it where an api has more than one.
    variant: str = ""
    # A super user would do more than ask.
    spares_super_user: bool = False
    # Where Kafka 3.9 is asked for it: on ZooKeeper, in KRaft mode, or nowhere, as it does not have it.
    modes: tuple[str, ...] = ("zookeeper",)

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}" + (f", {self.variant}" if self.variant else "")

    def message(self, world: World) -> Message:
        plain = self.request(world) if callable(self.request) else self.request
        return from_plain(APIS[api_by_name(self.api).key].request, plain)

    def needed(self, world: World) -> tuple[Right, ...]:
        return self.rights(world) if callable(self.rights) else self.rights


class Cell(NamedTuple):
    situation: str
    user: str
    acls: tuple[Acl, ...]
    expected: str


def cells(probe: Probe, world: World) -> Iterator[Cell]:
    rights = probe.needed(world)
    all_of_them = tuple(rule(right) for right in rights)
    without_first = probe.missing.get(0, probe.refused)

    def every(pattern: str, principal: str = ALICE, host: str = "*") -> tuple[Acl, ...]:
        return tuple(rule(right, pattern, principal=principal, host=host) for right in rights)

    yield Cell("none", ALICE, (), probe.refused)
    yield Cell("right host", ALICE, every("literal", host=world.host), probe.allowed)
    for pattern in PATTERNS:
        denied = rule(rights[0], pattern, permission=Permission.DENY)
        yield Cell(f"none, others {pattern}", ALICE, every(pattern, SOMEBODY_ELSE), probe.refused)
        yield Cell(f"allow {pattern}", ALICE, every(pattern), probe.allowed)
        yield Cell(f"deny {pattern}", ALICE, (*all_of_them, denied), without_first)
        yield Cell(f"wrong host {pattern}", ALICE, every(pattern, host=OTHER_HOST), probe.refused)
        yield Cell(f"anonymous {pattern}", ANONYMOUS, every(pattern), probe.anonymous or probe.refused)
        yield Cell(f"anonymous {pattern}, everybody", ANONYMOUS, every(pattern, "*"), probe.anonymous or probe.allowed)
        if not probe.spares_super_user:
            # What denies it to everybody does not deny it to a super user.
            to_all = rule(rights[0], pattern, principal="*", permission=Permission.DENY)
            yield Cell(f"super user, denied {pattern}", ADMIN, (to_all,), probe.super_user or probe.allowed)
    if not probe.spares_super_user:
        yield Cell("super user", ADMIN, (), probe.super_user or probe.allowed)
    if len(rights) > 1:
        for place, right in enumerate(rights):
            rest = tuple(rule(each) for each in rights if each is not right)
            yield Cell(f"all but {right.operation.name}", ALICE, rest, probe.missing.get(place, probe.refused))


def rule(
    right: Right,
    pattern: str = "literal",
    *,
    principal: str = ALICE,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> Acl:
    name = right.name
    if pattern == "prefixed":
        name = _prefix(right)
    elif pattern == "wildcard" and right.type != AclResourceType.CLUSTER:
        name = "*"
    kind = PatternType.PREFIXED if pattern == "prefixed" else PatternType.LITERAL
    return Acl(right.type, name, f"User:{principal}", right.operation, permission, host, kind)


def _prefix(right: Right) -> str:
    if right.type == AclResourceType.CLUSTER:
        # There is one cluster, of this name.
        return CLUSTER_NAME
    if right.type in (AclResourceType.USER, AclResourceType.DELEGATION_TOKEN):
        return right.name[:6]
    return right.name.partition("-")[0] + "-"


@cache
def _schemas() -> dict[str, Schema]:
    """By the module of their messages, whose compiled classes do not tell of their fields' types."""
    return {f"braidlog.wire.generated.{schema.module}": schema for schema in schemas()}


def from_plain(kind: type[Message], plain: Mapping[str, Any]) -> Message:
    """A message of dicts and lists."""
    fields = {each.name: each.type for each in _schemas()[kind.__module__].structs[kind.__name__].fields}
    module = import_module(kind.__module__)
    return kind(**{key: _value(getattr(module, fields[key], None), value) for key, value in plain.items()})


def _value(kind: type[Message] | None, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(kind, each) for each in value]
    if isinstance(value, dict):
        assert kind is not None
        return from_plain(kind, value)
    return value


def gist(answer: Message) -> str:
    """Names, errors and bits of an answer: `orders-eu [0 TOPIC_AUTHORIZATION_FAILED]`."""
    return _gist(as_plain(answer)) or OK


def _gist(plain: Mapping[str, Any]) -> str:
    said: list[str] = []
    label = next((plain[key] for key in _IDENTITIES if plain.get(key) is not None), None)
    if label is not None and not isinstance(label, list):
        said.append(str(label))
    for key, value in plain.items():
        if key == "topic_config_error_code" and value:
            said.append(f"configs {_NAMES[value]}")
        elif key.endswith("error_code") and value:
            said.append(_NAMES[value])
        elif key.endswith("authorized_operations") and value != AUTHORIZED_OPERATIONS_OMITTED:
            said.append("may " + "|".join(sorted(each.name for each in operations_of(value) or ())))
    for key, value in plain.items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and key not in _IGNORED:
            items = sorted(each for each in map(_gist, value) if not each.startswith("__"))
            if any(items):
                said.append(f"[{', '.join(items)}]")
    return " ".join(said)
