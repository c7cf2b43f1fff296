from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.records.validation import (
    AppendPolicy,
)
from support.appended_records import append
from support.record_cases import NOW

RECORDS = [Record(timestamp=NOW + i, key=b"k", value=b"v" * 100) for i in range(4)]


def test_append_time_rewrites_the_header_and_shares_the_body() -> None:
    frame = build_batch(RECORDS)
    validated = append(frame, AppendPolicy(log_append_time=True))
    assert isinstance(validated.parts[1], memoryview)
    assert {record.timestamp for record in read_records(b"".join(validated.parts))} == {NOW}
    assert (validated.max_timestamp, validated.offset_of_max_timestamp) == (NOW, 50)


def test_sizes_are_checked_before_and_after_recompression() -> None:
    batch = build_batch(RECORDS, codec=1)
    with pytest.raises(MessageTooLargeError):
        append(batch, AppendPolicy(max_message_bytes=len(batch) - 1))
    append(batch, AppendPolicy(max_message_bytes=len(batch)))
    with pytest.raises(MessageTooLargeError):
        append(batch, AppendPolicy(max_message_bytes=len(batch), codec=0))
    old = build_message_set(RECORDS, magic=1, codec=1)
    with pytest.raises(MessageTooLargeError):
        append(old, AppendPolicy(max_message_bytes=len(old), codec=0), version=2)


def test_what_produce_versions_may_hold() -> None:
    zstd = build_batch(RECORDS, codec=4)
    with pytest.raises(UnsupportedCompressionTypeError, match="version 6"):
        append(zstd, version=6)
    assert append(zstd, version=7).count == 4
    for magic in (0, 1):
        old = build_message_set(RECORDS, magic=magic)
        with pytest.raises(InvalidRecordError, match="magic 2"):
            append(old, version=3)
        assert append(old, version=2).converted
    with pytest.raises(InvalidRecordError, match="one record batch"):
        append(build_batch(RECORDS) * 2)
    with pytest.raises(InvalidRecordError, match="at least one"):
        append(b"")
    with pytest.raises(InvalidRecordError, match="at least one"):
        append(build_batch(RECORDS)[:-1])
