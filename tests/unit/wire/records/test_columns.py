"""Columns of views: every length near the edges of the inline form, anywhere in a buffer, nulls, taking back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.wire.records.columns import RecordColumns, SpanColumn
from support.column_cases import strings_of
from support.record_cases import thorough


@thorough
@given(buffer=st.binary(max_size=40), spans=st.lists(st.none() | st.tuples(st.integers(0, 40), st.integers(0, 40))))
def test_views_stand_for_their_bytes(buffer: bytes, spans: list[tuple[int, int] | None]) -> None:
    column = SpanColumn()
    expected: list[bytes | None] = []
    for span in spans:
        if span is None:
            column.add_null()
            expected.append(None)
        else:
            at = min(span[0], len(buffer))
            length = min(span[1], len(buffer) - at)
            column.add(buffer, at, length, 1)
            expected.append(buffer[at : at + length])
    assert strings_of(column, [b"", buffer]) == expected


def test_negative_words_are_kept() -> None:
    for size in range(14):
        for tail in (b"", b"\xff" * 12):
            column = SpanColumn()
            column.add(b"\xff" * size + tail, 0, size, 0)
            assert strings_of(column, [b"\xff" * size]) == [b"\xff" * size]


@thorough
@given(first=st.lists(st.booleans(), max_size=20), second=st.lists(st.booleans(), max_size=20))
def test_what_is_taken_back_leaves_no_trace(first: list[bool], second: list[bool]) -> None:
    buffer = b"thirteen bytes"
    columns = RecordColumns()
    for present in first:
        _add(columns.keys, buffer, present)
    mark = columns.mark()
    for present in second:
        _add(columns.keys, buffer, present)
    columns.rewind(mark)
    for present in second:
        _add(columns.keys, buffer, not present)
    expected = first + [not present for present in second]
    assert strings_of(columns.keys, [buffer]) == [buffer if present else None for present in expected]


def _add(column: SpanColumn, buffer: bytes, present: bool) -> None:
    if present:
        column.add(buffer, 0, len(buffer), 0)
    else:
        column.add_null()


def test_what_batches_share_is_kept_as_runs() -> None:
    columns = RecordColumns()
    for added, kind, epoch in ((2, 0, 1), (0, 1, 9), (3, 0, 2), (1, 1, 2)):
        columns.end_batch(added, kind, epoch)
    assert columns.count == 6
    assert columns.timestamp_type_runs == [(0, 5), (1, 1)]
    assert columns.leader_epoch_runs == [(1, 2), (2, 4)]


def test_buffers_are_numbered_once() -> None:
    columns = RecordColumns()
    one, two = bytes(5), bytes(6)
    assert [columns.index_of(each) for each in (one, one, two)] == [0, 0, 1]
    assert columns.buffers == [one, two]
