"""Markers, aborted transactions, batches that start too early or end too soon."""

from __future__ import annotations

import pytest

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange
from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from support.visible import visible_records


def batch(base: int, *values: str, producer: int = -1, codec: int = 0) -> bytes:
    records = [Record(timestamp=1, value=value.encode()) for value in values]
    return build_batch(
        records,
        base_offset=base,
        codec=codec,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    return build_end_txn_marker(commit=commit, producer_id=producer, producer_epoch=0, timestamp=1, base_offset=base)


def values(records: list[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_starts_before_the_position(codec: int) -> None:
    found = visible_records(batch(10, "a", "b", "c", codec=codec), 12)
    assert values(found.records) == ["c"]
    assert found.records[0].offset == 12
    assert found.next_offset == 13


def test_an_incomplete_last_batch_waits_for_the_next_fetch() -> None:
    data = batch(0, "a", "b") + batch(2, "c")[:-1]
    found = visible_records(data, 0)
    assert values(found.records) == ["a", "b"]
    assert found.next_offset == 2


def test_markers_are_passed_over_but_have_offsets() -> None:
    data = batch(0, "a", producer=7) + marker(1, 7, commit=True) + batch(2, "b")
    found = visible_records(data, 0)
    assert values(found.records) == ["a", "b"]
    assert found.next_offset == 3


def test_aborted_records_are_left_out_up_to_their_marker() -> None:
    data = (
        batch(0, "taken back", producer=7)
        + batch(1, "other", producer=8)
        + batch(2, "taken back too", producer=7)
        + marker(3, 7, commit=False)
        + batch(4, "second try", producer=7)
        + marker(5, 7, commit=True)
        + marker(6, 8, commit=True)
    )
    found = visible_records(data, 0, [AbortedRange(7, 0)])
    assert values(found.records) == ["other", "second try"]
    assert found.next_offset == 7


def test_an_abort_that_begins_later_does_not_reach_back() -> None:
    data = (
        batch(0, "kept", producer=7)
        + marker(1, 7, commit=True)
        + batch(2, "taken back", producer=7)
        + marker(3, 7, commit=False)
    )
    found = visible_records(data, 0, [AbortedRange(7, 2)])
    assert values(found.records) == ["kept"]


def test_records_without_a_transaction_are_never_aborted() -> None:
    found = visible_records(batch(0, "a"), 0, [AbortedRange(-1, 0)])
    assert values(found.records) == ["a"]


def test_old_message_sets() -> None:
    records = [Record(timestamp=1, value=b"x"), Record(timestamp=1, value=b"y")]
    data = build_message_set(records, magic=1, base_offset=5, codec=1)
    found = visible_records(data, 6)
    assert values(found.records) == ["y"]
    assert found.next_offset == 7


def test_a_flipped_bit_is_raised() -> None:
    data = bytearray(batch(0, "abc"))
    data[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        visible_records(bytes(data), 0)
