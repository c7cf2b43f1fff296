"""Access control rules: who may do what to which resources, and who decides (KIP-11, KIP-290, KIP-679).

    allow  User:alice  from *  to Read  topic  orders-  (prefixed)

Everything that applies to a resource counts: rules for its very name, for a prefix of it, and for `*`. One that denies
outweighs all that allow. Nothing here waits, logs or remembers decisions; `AclRules` is as large as the rules are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar


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


_Kind = TypeVar("_Kind", bound=IntEnum)


def written(member: IntEnum) -> str:
    """As rules in the store, Kafka's tools and audit lines have it: `ClusterAction`."""
    return "".join(word.capitalize() for word in member.name.split("_"))


def read_as(kind: type[_Kind], text: str) -> _Kind | None:
    """What `written` wrote, also in other letter cases and with underscores."""
    plain = text.replace("_", "").replace("-", "").casefold()
    return next((each for each in kind if each.name.replace("_", "").casefold() == plain), None)


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


class ResourcePattern(NamedTuple):
    """Which resources rules are about."""

    resource_type: AclResourceType
    name: str
    # LITERAL or PREFIXED.
    pattern_type: PatternType


class Acl(NamedTuple):
    """One rule: a principal such as `User:alice`, from a host (`*`: any), may or may not do something to a resource."""

    resource_type: AclResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL

    @property
    def pattern(self) -> ResourcePattern:
        return ResourcePattern(self.resource_type, self.resource_name, self.pattern_type)


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
            self.matches_pattern(acl.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether the filter means rules about these resources, whatever else they say."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type == PatternType.MATCH:
            return self.resource_name is None or applies(pattern, self.resource_name)
        if self.pattern_type not in (PatternType.ANY, pattern.pattern_type):
            return False
        return self.resource_name in (None, pattern.name)


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


def applies(pattern: ResourcePattern, name: str) -> bool:
    """Whether the pattern is about a resource of this name (and the pattern's type)."""
    if pattern.pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def in_words(acl: Acl) -> str:
    return (
        f"{acl.permission.name.lower()} {acl.principal} from {acl.host} to {written(acl.operation)} "
        f"{in_words_of(acl.pattern)}"
    )


def in_words_of(pattern: ResourcePattern) -> str:
    kind = pattern.resource_type.name.lower().replace("_", " ")
    if pattern.pattern_type == PatternType.PREFIXED:
        return f"every {kind} whose name begins with {pattern.name!r}"
    return f"{kind} {pattern.name!r}"


class _TypeRules:
    """The rules about one type of resource, found by name: literal ones, and prefixes by their lengths."""

    def __init__(self, literal: dict[str, tuple[Acl, ...]], prefixed: dict[str, tuple[Acl, ...]]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.prefix_lengths = sorted({len(prefix) for prefix in prefixed})

    def applying_to(self, name: str) -> Iterator[Acl]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())


_NO_RULES: Final = _TypeRules({}, {})


def _of_pattern_types(rules: _TypeRules) -> tuple[tuple[PatternType, dict[str, tuple[Acl, ...]]], ...]:
    return (PatternType.LITERAL, rules.literal), (PatternType.PREFIXED, rules.prefixed)


class AclRules:
    """Decides by a set of rules, which does not change: `replacing` makes another one."""

    def __init__(
        self, acls: Iterable[Acl], super_users: frozenset[str] = frozenset(), *, allow_if_none_found: bool = False
    ) -> None:
        self.super_users = super_users
        self.allow_if_none_found = allow_if_none_found
        self._by_type: dict[AclResourceType, _TypeRules] = {}
        by_pattern: dict[ResourcePattern, list[Acl]] = {}
        for acl in acls:
            by_pattern.setdefault(acl.pattern, []).append(acl)
        self._replace(by_pattern)

    def replacing(self, changes: Mapping[ResourcePattern, Iterable[Acl]]) -> AclRules:
        """These rules, but for those about some patterns; the others are not looked at one by one."""
        changed = AclRules((), self.super_users, allow_if_none_found=self.allow_if_none_found)
        changed._by_type = dict(self._by_type)
        changed._replace(changes)
        return changed

    def _replace(self, changes: Mapping[ResourcePattern, Iterable[Acl]]) -> None:
        of_type: dict[AclResourceType, tuple[dict[str, tuple[Acl, ...]], dict[str, tuple[Acl, ...]]]] = {}
        for pattern, acls in changes.items():
            if pattern.resource_type not in of_type:
                known = self._by_type.get(pattern.resource_type, _NO_RULES)
                of_type[pattern.resource_type] = dict(known.literal), dict(known.prefixed)
            by_name = of_type[pattern.resource_type][pattern.pattern_type == PatternType.PREFIXED]
            # Each rule once, in a stable order.
            rules = tuple(sorted(set(acls)))
            if rules:
                by_name[pattern.name] = rules
            else:
                by_name.pop(pattern.name, None)
        for resource_type, (literal, prefixed) in of_type.items():
            self._by_type[resource_type] = _TypeRules(literal, prefixed)

    @property
    def count(self) -> int:
        of_types = self._by_type.values()
        return sum(
            len(acls) for each in of_types for by_name in (each.literal, each.prefixed) for acls in by_name.values()
        )

    @property
    def acls(self) -> list[Acl]:
        """All of them, sorted."""
        return self.find(AclFilter())

    def find(self, which: AclFilter) -> list[Acl]:
        """Those that a filter means, sorted."""
        return sorted(acl for pattern in self.patterns(which) for acl in self.about(pattern) if which.matches(acl))

    def patterns(self, which: AclFilter | None = None) -> Iterator[ResourcePattern]:
        """What there are rules about, of what a filter means."""
        wanted = which or AclFilter()
        for resource_type, rules in self._by_type.items():
            if wanted.resource_type in (AclResourceType.ANY, resource_type):
                for pattern_type, by_name in _of_pattern_types(rules):
                    for name in by_name:
                        pattern = ResourcePattern(resource_type, name, pattern_type)
                        if wanted.matches_pattern(pattern):
                            yield pattern

    def about(self, pattern: ResourcePattern) -> tuple[Acl, ...]:
        """The rules about this very pattern."""
        rules = self._by_type.get(pattern.resource_type, _NO_RULES)
        return dict(_of_pattern_types(rules))[pattern.pattern_type].get(pattern.name, ())

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
        hosts = _spellings(host)
        denying = _first(applying, Permission.DENY, principal, hosts, (operation,))
        if denying is not None:
            return Decision(False, denying, "a rule denies it")
        allowing = _first(applying, Permission.ALLOW, principal, hosts, (operation, *_IMPLIED_BY.get(operation, ())))
        if allowing is not None:
            return Decision(True, allowing, "a rule allows it")
        return Decision(False, None, "no rule allows it")

    def decide_by_type(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Whether there may be any resource of this type to which the principal may do this (KIP-679)."""
        if principal in self.super_users:
            return True
        rules = self._by_type.get(resource_type, _NO_RULES)
        hosts = _spellings(host)

        def some(by_name: dict[str, tuple[Acl, ...]], permission: Permission) -> set[str]:
            return {
                name
                for name, acls in by_name.items()
                if _first(acls, permission, principal, hosts, (operation,)) is not None
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
    acls: Iterable[Acl],
    permission: Permission,
    principal: str,
    hosts: tuple[str, ...],
    operations: tuple[AclOperation, ...],
) -> Acl | None:
    for acl in acls:
        if (
            acl.permission == permission
            and acl.principal in (principal, WILDCARD_PRINCIPAL)
            and acl.host in hosts
            and (acl.operation == AclOperation.ALL or acl.operation in operations)
        ):
            return acl
    return None


def _spellings(host: str) -> tuple[str, ...]:
    """How rules may write the address: `::1` is 0:0:0:0:0:0:0:1 to Kafka's brokers."""
    if ":" not in host:
        return (WILDCARD, host)
    from ipaddress import IPv6Address

    address, percent, zone = host.partition("%")
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return (WILDCARD, host)
    if parsed.ipv4_mapped is not None:
        return (WILDCARD, host, str(parsed.ipv4_mapped))
    groups = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return (WILDCARD, host, groups + percent + zone)
