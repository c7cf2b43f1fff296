from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.conversion import down_convert, read_message_set
from braidlog.wire.records.reading import Record, read_records
from support.record_cases import NOW, quick, record_lists


@pytest.mark.parametrize("magic", [0, 1])
@quick
@given(records=record_lists(), codec=st.integers(0, 3), base_offset=st.integers(0, 2**60))
def test_offsets_keys_and_values_survive(magic: int, records: list[Record], codec: int, base_offset: int) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    old = down_convert(batch, 0, len(batch), magic=magic)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in read_message_set(old, 0, len(old))] == [
        (base_offset + i, r.timestamp if magic else -1, r.key, r.value, ()) for i, r in enumerate(records)
    ]
    assert {(h.magic, h.codec) for h in iterate_headers(old, 0, len(old))} == {(magic, codec)}


def test_several_batches() -> None:
    records = [Record(timestamp=NOW, value=b"v")] * 3
    marker = build_end_txn_marker(commit=False, producer_id=1, producer_epoch=0, timestamp=NOW, base_offset=3)
    log = build_batch(records) + marker + build_batch(records, base_offset=4, codec=2) + b"cut"
    old = down_convert(log, 0, len(log), magic=1)
    assert [r.offset for r in read_records(old)] == [0, 1, 2, 4, 5, 6]
    assert [r.offset for r in read_records(down_convert(log, 0, len(log), magic=0, first_offset=2))] == [2, 4, 5, 6]
    gone = build_batch(records)
    assert down_convert(gone, 0, len(gone), magic=1, first_offset=3) == b""


def test_what_is_old_enough_stays_as_it_is() -> None:
    packed = build_message_set([Record(timestamp=NOW)] * 2, magic=1, codec=1)
    log = build_message_set([Record(value=b"0")], magic=0) + packed
    assert down_convert(log, 0, len(log), magic=1) == log
    older = down_convert(log, 0, len(log), magic=0)
    assert {h.magic for h in iterate_headers(older, 0, len(older))} == {0}
    assert [r.value for r in read_records(older)] == [b"0", None, None]


def test_zstd_cannot_be_read_by_old_clients() -> None:
    batch = build_batch([Record(value=b"v")], codec=4)
    with pytest.raises(UnsupportedCompressionTypeError, match="zstd"):
        down_convert(batch, 0, len(batch), magic=1)


def test_old_sets_are_checked() -> None:
    packed = build_message_set([Record(value=b"v")], magic=1, codec=1)
    with pytest.raises(InvalidRecordError):
        read_message_set(packed * 2, 0, 2 * len(packed))
    with pytest.raises(CorruptMessageError, match="crc"):
        read_message_set(packed[:-1] + b"?", 0, len(packed))
