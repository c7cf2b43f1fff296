from __future__ import annotations

import pytest

from braidlog.core.errors import CorruptLogError
from braidlog.core.ids import parse_id
from braidlog.storage.dirs.partition_metadata_file import decode_partition_metadata, encode_partition_metadata

TOPIC_ID = parse_id("AAECAwQFBgcICQoLDA0ODw")
# Written by Kafka 3.9.1: no newline at the end.
KAFKA_TEXT = "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_as_kafka_writes_it() -> None:
    assert encode_partition_metadata(TOPIC_ID) == KAFKA_TEXT
    assert decode_partition_metadata(KAFKA_TEXT, "f") == TOPIC_ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        "version: 0",
        "version: 0\ntopic_id: zz",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "nonsense",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CorruptLogError):
        decode_partition_metadata(text, "f")
