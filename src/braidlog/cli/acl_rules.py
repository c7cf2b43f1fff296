"""From the options of `braidlog acls` to rules and filters; the options and their meaning are those of kafka-acls.

--producer        Write, Describe and Create on topics, Write and Describe on transactional ids; with --idempotent
                  IdempotentWrite on the cluster
--consumer        Read and Describe on topics, Read on groups
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from braidlog.cli.options import shortened
from braidlog.core.errors import UserError
from braidlog.core.principal import Principal
from braidlog.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    Resource,
    read_as,
    written,
)

_Operations = tuple[AclOperation, ...]

_OPTIONS: Final = {
    AclResourceType.TOPIC: "topic",
    AclResourceType.GROUP: "group",
    AclResourceType.TRANSACTIONAL_ID: "transactional_id",
    AclResourceType.DELEGATION_TOKEN: "delegation_token",
    AclResourceType.USER: "user_principal",
}
_PRODUCER: Final[dict[AclResourceType, _Operations]] = {
    AclResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER: Final[dict[AclResourceType, _Operations]] = {
    AclResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResourceType.GROUP: (AclOperation.READ,),
}
_IDEMPOTENT: Final = (Resource(AclResourceType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE)
OPERATION_NAMES: Final = tuple(written(each) for each in AclOperation if each > AclOperation.ANY)


# Types for argparse


def operation(text: str) -> str:
    """In any letter case, as OPERATION_NAMES has it."""
    found = read_as(AclOperation, text)
    if found is None or found <= AclOperation.ANY:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is none of {', '.join(OPERATION_NAMES)}")
    return written(found)


def principal(text: str) -> str:
    try:
        return str(Principal.parse(text))
    except UserError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def pattern_type(text: str) -> str:
    return text.lower()


# What the options of a line mean


def resources(options: argparse.Namespace) -> list[Resource]:
    """Those that were named, each once."""
    found = [Resource(kind, name) for kind, option in _OPTIONS.items() for name in getattr(options, option)]
    if options.cluster:
        found.append(Resource(AclResourceType.CLUSTER, CLUSTER_NAME))
    return list(dict.fromkeys(found))


def new_rules(options: argparse.Namespace) -> list[Acl]:
    """Raises UserError for what makes no rule."""
    who = _principals(options)
    if not who:
        raise UserError("say whom the rules are about: --allow-principal User:alice, or --deny-principal")
    accesses = _accesses(options)
    kind = PatternType[options.resource_pattern_type.upper()]
    return list(
        dict.fromkeys(
            Acl(resource.type, resource.name, name, each, permission, host or WILDCARD, _pattern_of(resource, kind))
            for resource, each in accesses
            for permission, name, host in who
        )
    )


def filters(options: argparse.Namespace) -> list[AclFilter]:
    """Which rules the options mean; where they say nothing of a thing, it does not matter."""
    wanted = PatternType[options.resource_pattern_type.upper()]
    named: list[Resource | None] = [*resources(options)] or [None]
    about: list[tuple[Resource | None, AclOperation]]
    if options.producer or options.consumer:
        about = [*_accesses(options)]
    else:
        operations = [_read(each) for each in options.operation] or [AclOperation.ANY]
        about = [(resource, each) for resource in named for each in operations]
    who: Iterable[tuple[Permission, str | None, str | None]] = _principals(options) or [(Permission.ANY, None, None)]
    found: list[AclFilter] = []
    for resource, each in about:
        for permission, name, host in who:
            one = AclFilter(principal=name, operation=each, permission=permission, host=host)
            if resource is not None:
                one = one._replace(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    pattern_type=_pattern_of(resource, wanted),
                )
            found.append(one)
    return list(dict.fromkeys(found))


def _pattern_of(resource: Resource, wanted: PatternType) -> PatternType:
    """There is one cluster: no prefix means it better."""
    return PatternType.LITERAL if resource.type == AclResourceType.CLUSTER else wanted


def _accesses(options: argparse.Namespace) -> list[tuple[Resource, AclOperation]]:
    named = resources(options)
    if options.producer or options.consumer:
        return _of_roles(options, named)
    if options.idempotent:
        raise UserError("--idempotent goes with --producer")
    if not named:
        raise UserError(
            "say what the rules are about: --topic, --group, --cluster, --transactional-id, --delegation-token or "
            "--user-principal"
        )
    operations = [_read(each) for each in options.operation] or [AclOperation.ALL]
    for resource in named:
        for each in operations:
            if each != AclOperation.ALL and each not in OPERATIONS[resource.type]:
                known = ", ".join(written(other) for other in (AclOperation.ALL, *OPERATIONS[resource.type]))
                kind = resource.type.name.lower().replace("_", " ")
                raise UserError(f"--operation {written(each)} means nothing for a {kind}; there are {known}")
    return [(resource, each) for resource in named for each in operations]


def _of_roles(options: argparse.Namespace, named: list[Resource]) -> list[tuple[Resource, AclOperation]]:
    kinds = {resource.type for resource in named}
    if options.operation:
        raise UserError("--producer and --consumer say which operations are meant; leave out --operation")
    if AclResourceType.TOPIC not in kinds:
        raise UserError("--producer and --consumer need a --topic")
    if options.consumer and AclResourceType.GROUP not in kinds:
        raise UserError("--consumer needs a --group")
    if options.idempotent and not options.producer:
        raise UserError("--idempotent goes with --producer")
    found: list[tuple[Resource, AclOperation]] = []
    for wanted, of_role in ((options.producer, _PRODUCER), (options.consumer, _CONSUMER)):
        if wanted:
            found += [(resource, each) for resource in named for each in of_role.get(resource.type, ())]
    meant = {resource for resource, _ in found}
    for resource in named:
        if resource not in meant:
            kind = resource.type.name.lower().replace("_", " ")
            raise UserError(f"neither a producer nor a consumer is given rules for a {kind} here; leave it out")
    if options.idempotent:
        found.append(_IDEMPOTENT)
    return list(dict.fromkeys(found))


def _principals(options: argparse.Namespace) -> list[tuple[Permission, str, str | None]]:
    """Permission, principal and host of each rule; None where no host is given."""
    found: list[tuple[Permission, str, str | None]] = []
    for permission, word, names, hosts in (
        (Permission.ALLOW, "allow", options.allow_principal, options.allow_host),
        (Permission.DENY, "deny", options.deny_principal, options.deny_host),
    ):
        if hosts and not names:
            raise UserError(f"--{word}-host goes with --{word}-principal")
        found += [(permission, name, host) for name in names for host in hosts or [None]]
    return found


def _read(name: str) -> AclOperation:
    found = read_as(AclOperation, name)
    assert found is not None
    return found
