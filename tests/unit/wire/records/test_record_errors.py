from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record
from braidlog.wire.records.record_errors import record_errors_of
from braidlog.wire.records.validation import (
    AppendPolicy,
)
from support.appended_records import append
from support.record_cases import NOW


def test_record_errors_are_listed() -> None:
    records = [Record(timestamp=NOW, key=b"k"), Record(timestamp=NOW), Record(timestamp=NOW - 10, key=b"k")]
    with pytest.raises(InvalidRecordError) as refused:
        append(build_batch(records), AppendPolicy(compacted=True))
    assert record_errors_of(refused.value) == [(1, "a compacted topic cannot take a record without a key")]
    with pytest.raises(InvalidTimestampError) as late:
        append(build_batch(records), AppendPolicy(timestamp_before_max_ms=5))
    ((index, message),) = record_errors_of(late.value)
    assert index == 2
    assert message.startswith(f"timestamp {NOW - 10} of the record with offset 2 is out of range")
    assert record_errors_of(CorruptMessageError("whole batch")) == []


def test_a_flood_of_bad_records_stays_bounded() -> None:
    flood = build_batch([Record(timestamp=NOW)] * 12_000, codec=1)
    with pytest.raises(InvalidRecordError) as refused:
        append(flood, AppendPolicy(compacted=True))
    assert len(record_errors_of(refused.value)) == 10_000
    stamped = build_batch([Record(timestamp=NOW)] * 12_000, codec=1, log_append_time_ms=NOW)
    with pytest.raises(InvalidTimestampError) as late:
        append(stamped, AppendPolicy(log_append_time=True))
    assert len(record_errors_of(late.value)) == 10_000
    bomb = build_message_set([Record(timestamp=NOW, value=bytes(20_000_000))], magic=1, codec=1)
    with pytest.raises(CorruptMessageError, match="16777408 bytes allowed"):
        append(bomb, AppendPolicy(), version=2)
