"""Rules of access in the store, where and as Kafka writes them.

    /kafka-acl/Topic/orders                              {"version":1,"acls":[{"principal":"User:alice",…}]}
    /kafka-acl-extended/prefixed/Topic/orders-           the same, for every topic that begins so
    /kafka-acl-changes/acl_changes_0000000007            TOPIC:orders
    /kafka-acl-extended-changes/acl_changes_0000000002   {"version":1,"resourceType":"TOPIC","name":"orders-",…}

Names of resources are parts of paths as they are: what a path cannot have, a rule cannot be about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from braidlog.cluster import paths
from braidlog.cluster.records import BadRecordError, number, read_json, text, write_json
from braidlog.cluster.store import Create, InvalidPathError, check_path
from braidlog.security.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    ResourcePattern,
    read_as,
    written,
)

_VERSION: Final = 1
# What rules may be about, in the order in which Kafka numbers them.
RESOURCE_TYPES: Final = tuple(each for each in AclResourceType if each > AclResourceType.ANY)
DIRECTORIES: Final = {PatternType.LITERAL: paths.LITERAL_ACLS, PatternType.PREFIXED: paths.PREFIXED_ACLS}
CHANGE_DIRECTORIES: Final = {
    PatternType.LITERAL: paths.LITERAL_ACL_CHANGES,
    PatternType.PREFIXED: paths.PREFIXED_ACL_CHANGES,
}


def type_path(pattern_type: PatternType, resource_type: AclResourceType) -> str:
    """What the rules about resources of a type lie under."""
    return f"{DIRECTORIES[pattern_type]}/{written(resource_type)}"


def acl_path(pattern: ResourcePattern) -> str:
    return f"{type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"


def is_name(name: str) -> bool:
    """Whether a node may be called so; whoever writes to the store may write anything."""
    try:
        check_path(f"/{name}")
    except InvalidPathError:
        return False
    return bool(name) and "/" not in name


def encode_acls(acls: Iterable[Acl]) -> bytes:
    return write_json(
        {
            "version": _VERSION,
            "acls": [
                {
                    "principal": acl.principal,
                    "permissionType": written(acl.permission),
                    "operation": written(acl.operation),
                    "host": acl.host,
                }
                for acl in acls
            ],
        }
    )


def decode_acls(pattern: ResourcePattern, data: bytes) -> frozenset[Acl]:
    """Raises BadRecordError also where there is more than this version knows: half a node may lack what denies."""
    path = acl_path(pattern)
    if not data:
        return frozenset()
    content = read_json(path, data)
    version = number(path, content, "version")
    if version != _VERSION:
        raise BadRecordError(path, f"version {version} of rules is not known")
    entries = content.get("acls")
    if not isinstance(entries, list):
        raise BadRecordError(path, f"acls is {entries!r}, not a list")
    return frozenset(_decode(path, pattern, entry) for entry in entries)


def _decode(path: str, pattern: ResourcePattern, entry: object) -> Acl:
    if not isinstance(entry, dict):
        raise BadRecordError(path, f"{entry!r} is no rule")
    operation = read_as(AclOperation, text(path, entry, "operation"))
    permission = read_as(Permission, text(path, entry, "permissionType"))
    principal = text(path, entry, "principal")
    if operation is None or operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise BadRecordError(path, f"{entry['operation']!r} is no operation of a rule")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise BadRecordError(path, f"{entry['permissionType']!r} is neither Allow nor Deny")
    if ":" not in principal:
        raise BadRecordError(path, f"{principal!r} is no principal such as User:alice")
    return Acl(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        principal=principal,
        operation=operation,
        permission=permission,
        host=text(path, entry, "host"),
        pattern_type=pattern.pattern_type,
    )


def acl_change(pattern: ResourcePattern) -> Create:
    """Has every broker read the rules about the pattern again."""
    if pattern.pattern_type == PatternType.PREFIXED:
        data = write_json(
            {
                "version": _VERSION,
                "resourceType": pattern.resource_type.name,
                "name": pattern.name,
                "patternType": pattern.pattern_type.name,
            }
        )
    else:
        data = f"{pattern.resource_type.name}:{pattern.name}".encode()
    return Create(f"{CHANGE_DIRECTORIES[pattern.pattern_type]}/{paths.ACL_CHANGE}", data, sequential=True)


def changed_pattern(path: str, data: bytes) -> ResourcePattern:
    """What a notification names; old brokers write `Topic:orders`. Raises BadRecordError."""
    if path.startswith(f"{paths.PREFIXED_ACL_CHANGES}/"):
        content = read_json(path, data)
        kind, name = text(path, content, "resourceType"), text(path, content, "name")
        pattern_type = read_as(PatternType, text(path, content, "patternType"))
    else:
        kind, _, name = data.decode(errors="replace").partition(":")
        pattern_type = PatternType.LITERAL
    resource_type = read_as(AclResourceType, kind)
    if resource_type not in RESOURCE_TYPES or pattern_type not in DIRECTORIES or not name:
        raise BadRecordError(path, "it names nothing that rules may be about")
    return ResourcePattern(resource_type, name, pattern_type)
