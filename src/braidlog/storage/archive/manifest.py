"""`manifest.json` of an archive: what its files are, and what the topic was.

    ARCHIVE/
        manifest.json
        orders-0/00000000000000000000.log …     as in a data directory, so that `braidlog log verify ARCHIVE` reads it
        orders-1/…

    {"braidlog_topic_archive": 1, "braidlog": "0.1.0", "exported_at": "…", "cluster_id": "…", "broker_id": 1,
     "topic": "orders", "topic_id": "…", "configs": {"cleanup.policy": "compact"},
     "partitions": [{"partition": 0, "start_offset": 0, "end_offset": 42, "high_watermark": 42, "leader_epoch": 3,
                     "max_producer_id": 1000, "files": [{"name": "…", "size": 4711, "sha256": "…"}]}],
     "sha256": "…"}                             of the object without this member, keys sorted, no blanks

It is written last: an archive without it was torn. The checksums find damage; they are no signature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from braidlog.config.topic_names import is_internal, problem_with
from braidlog.core.errors import NewerFormatError, UserError
from braidlog.core.ids import id_text, parse_id
from braidlog.core.version import VERSION as BRAIDLOG_VERSION
from braidlog.storage.log.leader_epoch_file_cache import CHECKPOINT_NAME
from braidlog.storage.log.segment_file_names import LOG_SUFFIX, SUFFIXES, base_offset_of, file_name

FILE_NAME: Final = "manifest.json"
VERSION: Final = 1
MAX_BYTES: Final = 256 << 20
_KIND: Final = "braidlog_topic_archive"
_HEX: Final = frozenset("0123456789abcdef")
_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """start_offset <= end_offset. Records from `high_watermark` on were not known to be on all replicas in sync."""

    partition: int
    start_offset: int
    end_offset: int
    high_watermark: int
    leader_epoch: int
    max_producer_id: int
    files: tuple[ArchivedFile, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    cluster_id: str
    broker_id: int
    topic: str
    topic_id: bytes | None
    configs: Mapping[str, str]
    partitions: tuple[ArchivedPartition, ...]
    exported_at: str

    @property
    def bytes(self) -> int:
        return sum(file.size for each in self.partitions for file in each.files)

    @property
    def records_span(self) -> int:
        return sum(each.end_offset - each.start_offset for each in self.partitions)


def is_archived(name: str) -> bool:
    """Segments and epochs. What is known of producers stays behind: their ids mean others in another cluster."""
    base = base_offset_of(name)
    return name == CHECKPOINT_NAME or (base is not None and name in {file_name(base, suffix) for suffix in SUFFIXES})


def encode_manifest(manifest: Manifest) -> bytes:
    content: dict[str, Any] = {_KIND: VERSION, "braidlog": BRAIDLOG_VERSION, **asdict(manifest)}
    content["topic_id"] = None if manifest.topic_id is None else id_text(manifest.topic_id)
    content["sha256"] = _checksum(content)
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises UserError for anything that an export has not written."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    version = content.get(_KIND) if isinstance(content, dict) else None
    if not isinstance(content, dict) or type(version) is not int:
        raise UserError(f"{path} is no manifest of a topic's archive: `braidlog log export` makes one")
    if version > VERSION:
        raise NewerFormatError(path, str(version), str(VERSION), str(content.get("braidlog")))
    claimed = content.pop("sha256", None)
    try:
        found = _checksum(content)
    except (ValueError, RecursionError):
        found = ""
    if claimed != found:
        raise UserError(f"{path}: its checksum does not match; the archive was changed or damaged, export it again")
    return _Decoder(path).manifest(content)


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class _Decoder:
    """Takes nothing on trust: a checksum is soon written anew, and names become paths."""

    def __init__(self, path: str) -> None:
        self._path = path

    def manifest(self, content: dict[str, Any]) -> Manifest:
        topic = self._text(content, "topic")
        problem = problem_with(topic)
        if problem is not None or is_internal(topic):
            raise self._bad(problem or f"{topic} is the broker's own")
        configs = content.get("configs")
        if not isinstance(configs, dict) or not all(isinstance(value, str) for value in configs.values()):
            raise self._bad("configs must map keys to texts")
        topic_id: bytes | None = None
        if content.get("topic_id") is not None:
            try:
                topic_id = parse_id(self._text(content, "topic_id"))
            except ValueError as wrong:
                raise self._bad(f"topic_id {wrong}") from None
        partitions = content.get("partitions")
        if not isinstance(partitions, list) or not partitions:
            raise self._bad("partitions must be a list")
        return Manifest(
            self._text(content, "cluster_id"),
            self._number(content, "broker_id", 0),
            topic,
            topic_id,
            configs,
            tuple(self._partition(each, place) for place, each in enumerate(partitions)),
            self._text(content, "exported_at"),
        )

    def _partition(self, content: Any, place: int) -> ArchivedPartition:
        if not isinstance(content, dict) or content.get("partition") != place:
            raise self._bad(f"partition {place} is missing")
        files = content.get("files")
        if not isinstance(files, list):
            raise self._bad(f"files of partition {place} must be a list")
        made = ArchivedPartition(
            place,
            self._number(content, "start_offset", 0),
            self._number(content, "end_offset", 0),
            self._number(content, "high_watermark", 0),
            self._number(content, "leader_epoch", -1),
            self._number(content, "max_producer_id", -1),
            tuple(map(self._file, files)),
        )
        names = [file.name for file in made.files]
        if made.start_offset > made.end_offset or len(set(names)) != len(names):
            raise self._bad(f"partition {place} makes no sense")
        if not any(name.endswith(LOG_SUFFIX) for name in names):
            raise self._bad(f"partition {place} has no {LOG_SUFFIX} file")
        return made

    def _file(self, content: Any) -> ArchivedFile:
        if not isinstance(content, dict):
            raise self._bad("a file must be an object")
        name, sha256 = self._text(content, "name"), self._text(content, "sha256")
        if not is_archived(name):
            raise self._bad(f"{name!r} is no file that an archive holds")
        if len(sha256) != 64 or not set(sha256) <= _HEX:
            raise self._bad(f"{name} has no checksum")
        return ArchivedFile(name, self._number(content, "size", 0), sha256)

    def _text(self, content: dict[str, Any], key: str) -> str:
        value = content.get(key)
        if not isinstance(value, str):
            raise self._bad(f"{key} must be a text")
        return value

    def _number(self, content: dict[str, Any], key: str, least: int) -> int:
        value = content.get(key)
        if type(value) is not int or not least <= value <= _MOST:
            raise self._bad(f"{key} must be a number from {least} on")
        return value

    def _bad(self, problem: str) -> UserError:
        return UserError(f"{self._path}: {problem}; nothing was changed")
