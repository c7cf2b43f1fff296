"""`meta.properties`: which cluster and which broker a data directory belongs to, in Kafka 3.9's two versions.

    version 0 (ZooKeeper)            version 1 (KRaft)
    broker.id=7                      node.id=7
    cluster.id=Mk3OEYBSD34fcwNTJENDM2    same
    directory.id=...    optional     directory.id=...
    version=0                        version=1

The text is a Java properties file: `#` and `!` start comments, `=`, `:` or blanks separate key and value,
a backslash escapes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from braidlog.core.errors import CorruptLogError, UserError
from braidlog.core.ids import id_text, parse_id

FILE_NAME: Final = "meta.properties"
_MOST_DIGITS: Final = 9
_MUST_ESCAPE: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "=": "\\=", ":": "\\:"}
_UNESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    version: int = 0
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: bytes | None = None


def encode_meta_properties(properties: MetaProperties, wall_ms: int) -> str:
    pairs: list[tuple[str, str]] = []
    if properties.node_id is not None:
        pairs.append(("broker.id" if properties.version == 0 else "node.id", str(properties.node_id)))
    if properties.directory_id is not None:
        pairs.append(("directory.id", id_text(properties.directory_id)))
    pairs.append(("version", str(properties.version)))
    if properties.cluster_id is not None:
        pairs.append(("cluster.id", properties.cluster_id))
    stamp = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(wall_ms / 1000))
    lines = ["#", f"#{stamp}"] + [f"{key}={_escape(value)}" for key, value in pairs]
    return "\n".join(lines) + "\n"


def decode_meta_properties(text: str, path: str) -> MetaProperties:
    fields = parse_properties(text)
    version = fields.get("version", "")
    if version.isascii() and version.isdigit() and int(version[:_MOST_DIGITS]) > 1:
        raise UserError(
            f"{path}: version {version} was written by a newer Kafka or braidlog, and this one reads up to 1; start "
            "that one again, or restore a backup from before the upgrade"
        )
    if version not in ("0", "1"):
        raise CorruptLogError(f"{path}: unsupported version {version!r}, expected 0 or 1")
    id_key = "broker.id" if version == "0" else "node.id"
    node_id = _integer(fields, id_key, path)
    if version == "1":
        for key in ("cluster.id", "node.id"):
            if key not in fields:
                raise CorruptLogError(f"{path}: version 1 needs {key}, which is missing")
    directory_id: bytes | None = None
    if "directory.id" in fields:
        try:
            directory_id = parse_id(fields["directory.id"])
        except ValueError as problem:
            raise CorruptLogError(f"{path}: directory.id {problem}") from None
    return MetaProperties(int(version), fields.get("cluster.id"), node_id, directory_id)


def claim(found: MetaProperties | None, cluster_id: str, node_id: int, path: str) -> MetaProperties:
    """What a directory's file must say so that this broker may use it.

    A directory without the file is claimed as version 0, as a ZooKeeper-mode broker does; one of another cluster or
    broker raises UserError, because its logs would be mixed up with ours.
    """
    if found is None:
        return MetaProperties(0, cluster_id, node_id)
    if found.cluster_id is not None and found.cluster_id != cluster_id:
        raise UserError(
            f"{path} belongs to cluster {found.cluster_id}, but this broker's cluster is {cluster_id}: point log.dirs "
            f"at this cluster's data, start with that cluster's id, or move the directory away to start empty"
        )
    if found.node_id is not None and found.node_id != node_id:
        raise UserError(
            f"{path} belongs to broker {found.node_id}, but this broker's id is {node_id}: set "
            f"broker.id={found.node_id}, or point log.dirs at broker {node_id}'s data"
        )
    return replace(found, cluster_id=cluster_id, node_id=node_id)


def parse_properties(text: str) -> dict[str, str]:
    """A Java properties text as a dict; a later key wins."""
    fields: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            pending += line[:-1]
            continue
        key, value = _split(pending + line)
        fields[key] = value
        pending = ""
    if pending:
        key, value = _split(pending)
        fields[key] = value
    return fields


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key = line[:position]
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(key), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\" and position + 1 < len(text):
            position += 1
            character = text[position]
            if character == "u" and position + 4 < len(text):
                character = chr(int(text[position + 1 : position + 5], 16))
                position += 4
            else:
                character = _UNESCAPED.get(character, character)
        out.append(character)
        position += 1
    return "".join(out)


def _escape(value: str) -> str:
    return "".join(_MUST_ESCAPE.get(character, character) for character in value)


def _integer(fields: Mapping[str, str], key: str, path: str) -> int | None:
    text = fields.get(key)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise CorruptLogError(f"{path}: {key} {text!r} is not a number") from None
