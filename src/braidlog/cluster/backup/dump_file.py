"""A dump of a coordination tree: JSON, a line for each thing, so that neither side holds more than one of them.

    {"braidlog_cluster_dump":1,"braidlog":"0.1.0","store":"zookeeper","taken_at":"2026-11-18T16:00:00Z","secrets":false}
    {"path":"/brokers","text":""}
    {"path":"/brokers/seqid","text":"","version":3}
    {"path":"/brokers/topics/orders","json":{"partitions":{"0":[1]},…}}
    …
    {"nodes":117,"sha256":"9f86d0…","point_in_time":true,"left_out":{"ephemerals":1,"notifications":4,"secrets":2}}

Nodes come parents first, siblings by name. A node's data is `json` where that gives the same bytes again, else `text`,
else `base64`. `version` is that of /brokers/seqid, from which broker ids are generated. The checksum is that of all
lines before the last one: a file without its last line was torn.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, Final, NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.backup.dump_contents import (
    Contents,
    LeftOut,
    is_ephemeral_place,
    is_kafkas,
    is_notification,
    parent_of,
    without_secrets,
)
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.store import InvalidPathError, check_path
from braidlog.core.errors import NewerFormatError, UserError
from braidlog.core.version import VERSION as BRAIDLOG_VERSION

VERSION: Final = 1
# ZooKeeper takes a megabyte; six bytes for each of a text's is the worst that JSON makes of it.
MAX_LINE_BYTES: Final = 8 << 20
# Each is one write when the tree is put back.
MOST_GENERATED_IDS: Final = 3000

_KIND: Final = "braidlog_cluster_dump"


class DumpedNode(NamedTuple):
    path: str
    data: bytes
    # How often the data was set; kept for /brokers/seqid alone.
    version: int = 0


class Header(NamedTuple):
    store: str
    taken_at: str
    secrets: bool


@dataclass
class Checked:
    """What a dump was found to hold."""

    header: Header
    contents: Contents = field(default_factory=Contents)
    left_out: LeftOut = field(default_factory=LeftOut)
    point_in_time: bool = True
    cluster_id: str | None = None
    # Of paths and data, to compare with a tree.
    digest: str = ""


class TreeDigest:
    """Of paths and data; two trees with the same digest are the same."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, path: str, data: bytes) -> None:
        encoded = path.encode()
        self._sha.update(b"%d %d\n" % (len(encoded), len(data)))
        self._sha.update(encoded)
        self._sha.update(data)

    def text(self) -> str:
        return self._sha.hexdigest()


class DumpWriter:
    """`begin`, `add` for each node that the tree holds, `end`. Decides what is left out, and counts it."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self._secrets = header.secrets
        self.contents = Contents()
        self.left_out = LeftOut()
        self._write({_KIND: VERSION, "braidlog": BRAIDLOG_VERSION, **header._asdict()})

    def add(self, path: str, data: bytes, version: int = 0, *, is_ephemeral: bool = False) -> None:
        if is_ephemeral:
            self.left_out.ephemerals += 1
            return
        if is_notification(path):
            self.left_out.notifications += 1
            return
        kept: bytes | None = data
        if not self._secrets:
            kept, secrets = without_secrets(path, data)
            self.left_out.secrets += secrets
        if kept is None:
            return
        self.contents.count(path)
        line: dict[str, Any] = {"path": path, **_encoded(kept)}
        if path == paths.BROKER_SEQUENCE and version:
            line["version"] = version
        self._write(line)

    def end(self, *, point_in_time: bool) -> None:
        last = {
            "nodes": self.contents.nodes,
            "sha256": self._sha.hexdigest(),
            "point_in_time": point_in_time,
            "left_out": asdict(self.left_out),
        }
        self._file.write(records.write_json(last) + b"\n")

    def _write(self, line: dict[str, Any]) -> None:
        encoded = records.write_json(line) + b"\n"
        self._sha.update(encoded)
        self._file.write(encoded)


def _encoded(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    try:
        content = json.loads(text) if text[:1] == "{" else None
        if content is not None and records.write_json(content) == data:
            return {"json": content}
    except (ValueError, RecursionError):
        pass
    return {"text": text}


def read_dump(file: BinaryIO, name: str) -> Iterator[DumpedNode]:
    """The nodes of a dump that `check_dump` found sound; only one line is held at a time."""
    return _Reader(file, name).nodes()


def check_dump(file: BinaryIO, name: str, each: Callable[[DumpedNode], None] | None = None) -> Checked:
    """Read all of it; UserError where it is torn, doctored or not a dump. `each` may refuse a node, too."""
    reader = _Reader(file, name)
    digest = TreeDigest()
    found = Checked(reader.header)
    for node in reader.nodes():
        found.contents.count(node.path)
        digest.add(node.path, node.data)
        if node.path == paths.CLUSTER_ID:
            try:
                found.cluster_id = records.decode_cluster_id(node.path, node.data)
            except BadRecordError as problem:
                raise UserError(f"{name}: {problem}") from None
        if each is not None:
            each(node)
    found.digest = digest.text()
    found.left_out, found.point_in_time = reader.left_out, reader.point_in_time
    return found


class _Reader:
    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._number = 0
        self._sha = hashlib.sha256()
        # The last node's, whose ancestors are the nodes that may have children now.
        self._last: tuple[str, ...] = ()
        self.left_out = LeftOut()
        self.point_in_time = True
        self.header = self._read_header()

    def nodes(self) -> Iterator[DumpedNode]:
        count = 0
        while True:
            before = self._sha.hexdigest()
            line = self._line()
            if "path" not in line:
                self._check_end(line, count, before)
                return
            count += 1
            yield self._node(line)

    def _read_header(self) -> Header:
        line = self._line(is_first=True)
        version = line.get(_KIND)
        if type(version) is not int:
            raise UserError(f"{self._name} is no dump of a cluster: `braidlog cluster dump` makes one")
        if version > VERSION:
            raise NewerFormatError(self._name, str(version), str(VERSION), str(line.get("braidlog")))
        store, taken_at, secrets = line.get("store"), line.get("taken_at"), line.get("secrets")
        if not isinstance(store, str) or not isinstance(taken_at, str) or not isinstance(secrets, bool):
            raise self._bad("is not the first line of a dump")
        return Header(store, taken_at, secrets)

    def _node(self, line: dict[str, Any]) -> DumpedNode:
        path, version = line["path"], line.get("version", 0)
        if not isinstance(path, str):
            raise self._bad("path is no text")
        try:
            path.encode()
            check_path(path)
        except (InvalidPathError, UnicodeEncodeError) as problem:
            raise self._bad(str(problem)) from None
        if not is_kafkas(path) or is_notification(path) or is_ephemeral_place(path):
            raise self._bad(f"{path} is no node that a dump holds")
        if type(version) is not int or not 0 <= version <= MOST_GENERATED_IDS:
            raise self._bad(f"version of {path} is not a number up to {MOST_GENERATED_IDS}")
        if version and path != paths.BROKER_SEQUENCE:
            raise self._bad(f"{path} has a version, and only {paths.BROKER_SEQUENCE} may")
        names = tuple(path[1:].split("/"))
        if names <= self._last:
            raise self._bad(f"{path} comes after /{'/'.join(self._last)}")
        if names[:-1] != self._last[: len(names) - 1]:
            raise self._bad(f"{path} comes without {parent_of(path)}")
        self._last = names
        return DumpedNode(path, self._data(line, path), version)

    def _data(self, line: dict[str, Any], path: str) -> bytes:
        given = [key for key in ("json", "text", "base64") if key in line]
        if len(given) != 1:
            raise self._bad(f"{path} needs one of json, text and base64")
        value = line[given[0]]
        try:
            if given[0] == "json" and isinstance(value, dict):
                return records.write_json(value)
            if given[0] == "text" and isinstance(value, str):
                return value.encode()
            if given[0] == "base64" and isinstance(value, str):
                return base64.b64decode(value, validate=True)
        except (UnicodeEncodeError, binascii.Error, ValueError):
            pass
        raise self._bad(f"the {given[0]} of {path} cannot be read")

    def _check_end(self, line: dict[str, Any], count: int, digest: str) -> None:
        if line.get("nodes") != count:
            raise self._bad(f"{line.get('nodes')} nodes were written, and {count} are there: the file is torn")
        if line.get("sha256") != digest:
            raise self._bad("the checksum does not match: the file was changed or damaged; take another backup")
        if self._file.read(1):
            raise self._bad("something follows the last line")
        left_out = line.get("left_out")
        if not isinstance(left_out, dict) or any(type(value) is not int for value in left_out.values()):
            raise self._bad("left_out is no count")
        self.left_out = LeftOut(
            left_out.get("ephemerals", 0), left_out.get("notifications", 0), left_out.get("secrets", 0)
        )
        self.point_in_time = line.get("point_in_time") is True

    def _line(self, *, is_first: bool = False) -> dict[str, Any]:
        raw = self._file.readline(MAX_LINE_BYTES)
        self._number += 1
        if not raw.endswith(b"\n") and not is_first:
            raise self._bad("the file ends here: it is torn" if len(raw) < MAX_LINE_BYTES else "the line is too long")
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            if is_first:
                raise UserError(f"{self._name} is no dump of a cluster: `braidlog cluster dump` makes one")
            raise self._bad("not a JSON object")
        self._sha.update(raw)
        return line

    def _bad(self, problem: str) -> UserError:
        return UserError(f"{self._name} line {self._number}: {problem}; nothing was changed")
