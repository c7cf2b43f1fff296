from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from braidlog.core.errors import NewerFormatError, UserError
from braidlog.storage.archive.manifest import (
    ArchivedFile,
    ArchivedPartition,
    Manifest,
    decode_manifest,
    encode_manifest,
    is_archived,
)

SEGMENT = ArchivedFile("00000000000000000000.log", 42, "0" * 64)
MANIFEST = Manifest(
    "cluster",
    1,
    "orders",
    bytes(range(16)),
    {"retention.ms": "-1"},
    (ArchivedPartition(0, 0, 10, 10, 3, 1000, (SEGMENT,)),),
    "2026-11-18T16:00:00Z",
)


def doctored(change: Any, *path: str | int, checksum: bool = True) -> bytes:
    """With a checksum that fits."""
    content = json.loads(encode_manifest(MANIFEST))
    del content["sha256"]
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = change
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest() if checksum else "0" * 64
    return json.dumps(content).encode()


def test_it_reads_what_it_wrote() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "f") == MANIFEST
    assert (MANIFEST.bytes, MANIFEST.records_span) == (42, 10)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is no manifest"),
        (b"[" * 100_000, "is no manifest"),
        (encode_manifest(MANIFEST)[:-20], "is no manifest"),
        (doctored("x", "cluster_id", checksum=False), "checksum does not match"),
        (doctored("../x", "topic"), "has a character other than"),
        (doctored("__consumer_offsets", "topic"), "the broker's own"),
        (doctored("short", "topic_id"), "topic_id"),
        (doctored({"a": 1}, "configs"), "configs must map"),
        (doctored([], "partitions"), "partitions must be a list"),
        (doctored(1, "partitions", 0, "partition"), "partition 0 is missing"),
        (doctored(11, "partitions", 0, "start_offset"), "makes no sense"),
        (doctored(-1, "partitions", 0, "end_offset"), "must be a number from 0"),
        (doctored(1 << 63, "partitions", 0, "end_offset"), "must be a number from 0"),
        (doctored(True, "broker_id"), "must be a number from 0"),
        (doctored("../../etc/passwd", "partitions", 0, "files", 0, "name"), "is no file that an archive holds"),
        (doctored("00000000000000000000.index", "partitions", 0, "files", 0, "name"), "has no .log file"),
        (doctored("g" * 64, "partitions", 0, "files", 0, "sha256"), "has no checksum"),
        (doctored([{}], "partitions", 0, "files"), "must be a text"),
    ],
)
def test_nothing_is_taken_on_trust(data: bytes, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        decode_manifest(data, "f")


def test_a_later_version_is_refused() -> None:
    with pytest.raises(NewerFormatError, match=r"format 2 was written by braidlog"):
        decode_manifest(doctored(2, "braidlog_topic_archive"), "f")


def test_segments_and_epochs_are_archived_and_nothing_else() -> None:
    assert is_archived("00000000000000000042.txnindex")
    assert is_archived("leader-epoch-checkpoint")
    for name in ("00000000000000000042.snapshot", "partition.metadata", "42.log", "00000000000000000042.log.deleted"):
        assert not is_archived(name), name
