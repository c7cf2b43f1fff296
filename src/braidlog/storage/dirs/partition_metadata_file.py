"""`partition.metadata`: which topic, by its id, a partition directory belongs to (KIP-516).

version: 0
topic_id: AAECAwQFBgcICQoLDA0ODw
"""

from __future__ import annotations

import logging
from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.core.ids import ZERO_ID, id_text, parse_id
from braidlog.storage.dirs.text_files import read_text
from braidlog.storage.files import Files
from braidlog.storage.log.unified_log import UnifiedLog

FILE_NAME: Final = "partition.metadata"

_log = logging.getLogger(__name__)


def encode_partition_metadata(topic_id: bytes) -> str:
    # Kafka writes no newline at the end.
    return f"version: 0\ntopic_id: {id_text(topic_id)}"


def decode_partition_metadata(text: str, path: str) -> bytes:
    """The topic id; raises CorruptLogError for anything that Kafka would refuse."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise CorruptLogError(f"{path}: malformed line {line!r}, expected 'name: value'")
        fields[name.strip()] = value.strip()
    if fields.get("version") != "0":
        raise CorruptLogError(f"{path}: unrecognized version {fields.get('version')!r}, expected 0")
    try:
        topic_id = parse_id(fields.get("topic_id", ""))
    except ValueError as problem:
        raise CorruptLogError(f"{path}: {problem}") from None
    if topic_id == ZERO_ID:
        raise CorruptLogError(f"{path}: the topic id is zero")
    return topic_id


def write_topic_id(files: Files, log: UnifiedLog, topic_id: bytes) -> None:
    """Synced with the first records: without its id, what an earlier topic left would be taken for the next one's.

    Until then a torn file is noticed, and the cluster's metadata has the id as well.
    """
    files.write_atomic(f"{log.directory}/{FILE_NAME}", encode_partition_metadata(topic_id).encode(), sync=False)
    log.sync_along(FILE_NAME)


def read_topic_id(files: Files, directory: str, log_path: str) -> bytes | None:
    """Which topic the log at `log_path` belongs to, if its directory says so."""
    path = f"{log_path}/{FILE_NAME}"
    text = read_text(files, directory, path)
    if text is None:
        return None
    try:
        return decode_partition_metadata(text, path)
    except CorruptLogError as problem:
        # The cluster's metadata knows the id as well, and writes it again.
        _log.warning("%s; ignoring it", problem)
        return None
