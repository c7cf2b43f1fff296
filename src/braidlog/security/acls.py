"""Access control rules: who may do what to which resources, and who decides (KIP-11, KIP-290, KIP-679).

    allow  User:alice  from *  to Read  topic  orders-  (prefixed)

Everything that applies to a resource counts: rules for its very name, for a prefix of it, and for `*`. One that denies
outweighs all that allow. Nothing here waits, logs or remembers decisions; `AclRules` is as large as the rules are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple


class AclOperation(IntEnum):
    """What a principal may do to a thing, as access control and descriptions number it."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        """A number that a later version of the protocol added."""
        return cls.UNKNOWN


class AclResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> AclResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    """How a resource's name is meant."""

    UNKNOWN = 0
    # Only in filters: of whatever kind.
    ANY = 1
    # Only in filters: everything that would apply to a resource of this name, prefixes and `*` too.
    MATCH = 2
    # The name itself; `*` stands for all.
    LITERAL = 3
    # Every name that begins so.
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> Permission:
        return cls.UNKNOWN


# What access to the cluster as a whole is written down as.
CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"

# What a rule about a resource of this type may be about, ALL aside.
OPERATIONS: Final[dict[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}  # fmt: skip

# Being allowed one of these allows the other as well; being denied it denies nothing else.
_IMPLIED_BY: Final[dict[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}

# What a description carries when it was not asked for operations, or the broker has no authorizer.
AUTHORIZED_OPERATIONS_OMITTED: Final = -(2**31)


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """The operations of a bit field (KIP-430); none where the broker did not say."""
    if bits == AUTHORIZED_OPERATIONS_OMITTED:
        return None
    return frozenset(each for each in AclOperation if each > AclOperation.ANY and bits >> each & 1)


class Acl(NamedTuple):
    """One rule: a principal such as `User:alice`, from a host (`*`: any), may or may not do something to a resource."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


class AclFilter(NamedTuple):
    """Which rules are meant; what is left out fits every rule."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether a rule is among those that are meant."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type == PatternType.MATCH:
            return self.resource_name is None or applies(acl, self.resource_name)
        if self.pattern_type not in (PatternType.ANY, acl.pattern_type):
            return False
        return self.resource_name in (None, acl.resource_name)


class Resource(NamedTuple):
    type: AclResourceType
    name: str


CLUSTER_RESOURCE: Final = Resource(AclResourceType.CLUSTER, CLUSTER_NAME)


class Decision(NamedTuple):
    allowed: bool
    # The rule that decided; none for a super user, and where no rule applies.
    rule: Acl | None
    # The same in words.
    reason: str


def applies(acl: Acl, name: str) -> bool:
    """Whether the rule is about a resource of this name (and the rule's type)."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


class _TypeRules:
    """The rules about one type of resource, found by name: literal ones, and prefixes by their lengths."""

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        self.prefix_lengths: list[int] = []

    def applying_to(self, name: str) -> Iterator[Acl]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())


class AclRules:
    """Decides by a set of rules, which does not change: a change of the rules makes another one."""

    def __init__(
        self, acls: Iterable[Acl], super_users: frozenset[str] = frozenset(), *, allow_if_none_found: bool = False
    ) -> None:
        self.super_users = super_users
        self.allow_if_none_found = allow_if_none_found
        # A dict as an ordered set: each rule once, in a stable order.
        self.acls: tuple[Acl, ...] = tuple(sorted(dict.fromkeys(acls)))
        self._by_type: dict[AclResourceType, _TypeRules] = {}
        for acl in self.acls:
            rules = self._by_type.setdefault(acl.resource_type, _TypeRules())
            by_name = rules.prefixed if acl.pattern_type == PatternType.PREFIXED else rules.literal
            by_name.setdefault(acl.resource_name, []).append(acl)
        for rules in self._by_type.values():
            rules.prefix_lengths = sorted({len(prefix) for prefix in rules.prefixed})

    def decide(self, principal: str, host: str, operation: AclOperation, resource: Resource) -> Decision:
        """Whether the principal, connected from the host, may do this."""
        if principal in self.super_users:
            return Decision(True, None, f"{principal} is a super user (super.users)")
        rules = self._by_type.get(resource.type)
        applying = list(rules.applying_to(resource.name)) if rules is not None else []
        if not applying:
            if self.allow_if_none_found:
                return Decision(True, None, "no rule is about this resource (allow.everyone.if.no.acl.found)")
            return Decision(False, None, "no rule is about this resource")
        denying = _first(applying, Permission.DENY, principal, host, (operation,))
        if denying is not None:
            return Decision(False, denying, "a rule denies it")
        allowing = _first(applying, Permission.ALLOW, principal, host, (operation, *_IMPLIED_BY.get(operation, ())))
        if allowing is not None:
            return Decision(True, allowing, "a rule allows it")
        return Decision(False, None, "no rule allows it")

    def decide_by_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Whether there may be any resource of this type to which the principal may do this (KIP-679)."""
        if principal in self.super_users:
            return True
        rules = self._by_type.get(resource_type, _TypeRules())

        def some(by_name: dict[str, list[Acl]], permission: Permission) -> set[str]:
            return {
                name
                for name, acls in by_name.items()
                if _first(acls, permission, principal, host, (operation,)) is not None
            }

        denied = some(rules.literal, Permission.DENY)
        if WILDCARD in denied:
            return False
        if self.allow_if_none_found:
            # Some name is free of rules.
            return True
        denied_prefixes = some(rules.prefixed, Permission.DENY)

        def outweighed(name: str) -> bool:
            return any(name.startswith(prefix) for prefix in denied_prefixes)

        allowed = some(rules.literal, Permission.ALLOW)
        if WILDCARD in allowed:
            return True
        if any(name not in denied and not outweighed(name) for name in allowed):
            return True
        return any(not outweighed(prefix) for prefix in some(rules.prefixed, Permission.ALLOW))


def _first(
    acls: Iterable[Acl], permission: Permission, principal: str, host: str, operations: tuple[AclOperation, ...]
) -> Acl | None:
    for acl in acls:
        if (
            acl.permission == permission
            and acl.principal in (principal, WILDCARD_PRINCIPAL)
            and acl.host in (host, WILDCARD)
            and (acl.operation == AclOperation.ALL or acl.operation in operations)
        ):
            return acl
    return None
