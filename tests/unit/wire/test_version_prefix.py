"""The version before keys and values of internal topics."""

from __future__ import annotations

import pytest

from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.group_records import OffsetCommitKey, OffsetCommitValue
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes


def test_an_offset_commit_as_kafka_stores_it() -> None:
    key = version_prefixed_bytes(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert read_version_prefix(key) == 1
    assert OffsetCommitKey.decode(reader_after_version(key), 1).partition == 3
    value = version_prefixed_bytes(OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9), 3)
    assert value == b"\x00\x03" + b"\0" * 7 + b"\x07" + b"\xff" * 4 + b"\x00\x01m" + b"\0" * 7 + b"\x09"


def test_no_version() -> None:
    with pytest.raises(MalformedError):
        read_version_prefix(b"\x00")
