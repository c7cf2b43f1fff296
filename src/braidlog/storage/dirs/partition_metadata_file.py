"""`partition.metadata`: which topic, by its id, a partition directory belongs to (KIP-516).

version: 0
topic_id: AAECAwQFBgcICQoLDA0ODw
"""

from __future__ import annotations

from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.core.ids import ZERO_ID, id_text, parse_id

FILE_NAME: Final = "partition.metadata"


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
