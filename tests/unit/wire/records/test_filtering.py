from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.wire.records.batch import iterate_headers, read_header
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.filtering import empty_batch, key_offsets, record_summaries, retain
from braidlog.wire.records.reading import Record, read_batch, read_records
from support.record_cases import NAMED_ERRORS, NOW, mutations, quick, record_lists, resigned, thorough


def content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence) for r in records]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@quick
@given(records=record_lists(), data=st.data(), horizon=st.none() | st.integers(0, 2**41))
def test_only_the_kept_records_stay(
    codec: int, records: list[Record], data: st.DataObject, horizon: int | None
) -> None:
    batch = build_batch(
        records, base_offset=70, codec=codec, leader_epoch=3, producer_id=8, producer_epoch=1, base_sequence=2**31 - 2
    )
    header = read_header(b"pad" + batch, 3, len(batch) + 3)
    keep = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)))
    kept = retain(b"pad" + batch, header, keep, delete_horizon_ms=horizon, keep_empty=True)
    assert kept is not None
    before = read_records(batch)
    assert content(read_records(kept)) == [c for c, stays in zip(content(before), keep, strict=True) if stays]
    (after,) = iterate_headers(kept, 0, len(kept))
    assert (after.base_offset, after.last_offset, after.last_sequence) == (70, header.last_offset, header.last_sequence)
    assert (after.producer_id, after.producer_epoch, after.leader_epoch) == (8, 1, 3)
    if any(keep):
        assert after.delete_horizon_ms == (-1 if horizon is None else horizon)
        assert after.max_timestamp == max(r.timestamp for r, stays in zip(before, keep, strict=True) if stays)
    # A second pass keeps the first mark.
    again = retain(kept, after, [True] * after.count, delete_horizon_ms=99, keep_empty=True)
    if after.has_delete_horizon:
        assert again == kept


def test_summaries_and_keys() -> None:
    records = [Record(timestamp=NOW, key=b"a", value=b"1"), Record(timestamp=NOW + 1, key=None), Record(key=b"")]
    for codec in range(5):
        batch = build_batch(records, base_offset=5, codec=codec)
        header = read_header(batch, 0, len(batch))
        assert key_offsets(batch, header) == [(b"a", 5), (None, 6), (b"", 7)]
        assert record_summaries(batch, header) == [
            (b"a", 5, NOW, True),
            (None, 6, NOW + 1, False),
            (b"", 7, -1, False),
        ]
    old = build_message_set(records, magic=1, base_offset=5, codec=1)
    assert key_offsets(old, read_header(old, 0, len(old))) == [(b"a", 5), (None, 6), (b"", 7)]


def test_nothing_left() -> None:
    batch = build_batch([Record(timestamp=NOW)], producer_id=4, producer_epoch=0, base_sequence=3)
    header = read_header(batch, 0, len(batch))
    assert retain(batch, header, [False]) is None
    empty = retain(batch, header, [False], keep_empty=True)
    assert empty == empty_batch(header)
    assert len(empty) == 61
    again = read_header(empty, 0, 61)
    assert (again.count, again.last_sequence, again.max_timestamp) == (0, 3, NOW)
    assert read_batch(empty, again) == []
    assert record_summaries(empty, again) == []
    assert retain(empty, again, []) is None
    assert retain(empty, again, [], keep_empty=True) == empty


def test_untouched_batches_are_the_same_bytes() -> None:
    records = [Record(key=b"k")] * 2
    for data in (build_batch(records, codec=3), build_message_set(records, magic=1, codec=1)):
        header = read_header(data, 0, len(data))
        assert retain(data, header, [True, True]) == data


def test_decisions_must_match_the_records() -> None:
    for data in (build_batch([Record(), Record()]), build_message_set([Record(), Record()], magic=0, codec=1)):
        header = read_header(data, 0, len(data))
        with pytest.raises(ValueError, match="3 decisions for the 2 records"):
            retain(data, header, [True, False, False])
    batch = build_batch([Record()])
    with pytest.raises(CorruptMessageError, match="cut short"):
        key_offsets(batch[:-1], read_header(batch, 0, len(batch)))


@thorough
@given(data=st.data(), codec=st.integers(0, 4))
def test_mutated_batches_raise_only_named_errors(data: st.DataObject, codec: int) -> None:
    records = data.draw(record_lists(max_size=3))
    mutated = resigned(data.draw(mutations(build_batch(records, codec=codec))))
    with suppress(*NAMED_ERRORS):
        for header in iterate_headers(mutated, 0, len(mutated)):
            summaries = record_summaries(mutated, header, limit=1 << 20)
            keep = [index % 2 == 0 for index in range(len(summaries))]
            retain(mutated, header, keep, delete_horizon_ms=NOW, limit=1 << 20)
