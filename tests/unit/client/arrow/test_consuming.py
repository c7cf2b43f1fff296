"""Fetched slices to tables: all of them or so many, positions, damage, and taking turns with `poll`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from braidlog.client.arrow import consuming
from braidlog.client.arrow.consuming import poll_arrow
from braidlog.client.arrow.decoding import to_record_batch
from braidlog.client.arrow.shape import USUAL, TableShape
from braidlog.client.consumer.fetch.completed_fetch import AbortedRange, CompletedFetch
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.partition_state import FETCHING, PartitionState
from braidlog.client.errors import PoisonRecordError
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record

T = TypeVar("T")
NOW = 1_700_000_000_000


class Polling:
    """A consumer's fetch buffer, with two partitions that are being read from offset 0."""

    def __init__(self) -> None:
        self._fetch_buffer = FetchBuffer(threading.Lock(), lambda: None)
        self.states = [PartitionState(TopicPartition("t", number)) for number in range(2)]
        for state in self.states:
            state.move(FETCHING)
            state.position = 0
        self.timeouts: list[float] = []

    def _poll_fetches(self, take: Callable[[FetchBuffer], T | None], timeout_s: float) -> T | None:
        self.timeouts.append(timeout_s)
        return take(self._fetch_buffer)

    def arrives(
        self, partition: int, data: bytes, position: int = 0, aborted: list[AbortedRange] | None = None
    ) -> None:
        self._fetch_buffer.incoming.append(
            CompletedFetch(self.states[partition], data, 0, len(data), position, aborted or [])
        )

    def positions(self) -> list[int]:
        return [int(state.position) for state in self.states]


def batch(first: int, count: int, **options: int) -> bytes:
    records = [Record(first + each, NOW + each, None, b"value %d" % (first + each)) for each in range(count)]
    return build_batch(records, base_offset=first, **options)  # type: ignore[arg-type]


def offsets(polling: Polling, most: int | None = None) -> list[int]:
    found: list[int] = poll_arrow(polling, 0.0, most, ["offset"]).column("offset").to_pylist()
    return found


def test_everything_that_is_there() -> None:
    polling = Polling()
    polling.arrives(1, batch(0, 3) + batch(3, 2, codec=4, leader_epoch=4))
    polling.arrives(0, batch(0, 1))
    table = poll_arrow(polling, 2.5)
    assert polling.timeouts == [2.5]
    assert table.schema.names == list(USUAL)
    assert table.column("partition").to_pylist() == [1] * 5 + [0]
    assert table.column("value").to_pylist()[:2] == [b"value 0", b"value 1"]
    assert polling.positions() == [1, 5]
    assert polling.states[1].position_epoch == 4
    assert polling._fetch_buffer.records_taken == 6
    again = poll_arrow(polling)
    assert again.num_rows == 0
    assert again.schema == table.schema


def test_so_many_at_a_time_and_the_rest_by_poll() -> None:
    polling = Polling()
    polling.arrives(0, batch(0, 3) + batch(3, 3))
    polling.arrives(1, batch(0, 2))
    assert offsets(polling, 4) == [0, 1, 2, 3]
    assert polling.positions() == [4, 0]
    assert [record.offset for record in polling._fetch_buffer.take(1)] == [4]
    assert offsets(polling, 2) == [5, 0]
    assert offsets(polling) == [1]
    assert polling.positions() == [6, 2]
    assert polling._fetch_buffer.drained == len(batch(0, 3) + batch(3, 3) + batch(0, 2))


def test_paused_and_lost_partitions_are_left_out() -> None:
    polling = Polling()
    polling.arrives(0, batch(0, 2))
    polling.arrives(1, batch(0, 2))
    polling.states[0].is_paused = True
    polling.states[1].is_current = False
    assert offsets(polling) == []
    polling.states[0].is_paused = False
    assert offsets(polling) == [0, 1]


def test_aborted_records_are_left_out_wherever_one_stops() -> None:
    def transaction(first: int, *, commit: bool) -> bytes:
        marker = build_end_txn_marker(
            commit=commit, producer_id=1, producer_epoch=0, timestamp=NOW, base_offset=first + 2
        )
        records = [Record(first + each, NOW, None, b"v") for each in range(2)]
        return (
            build_batch(
                records, base_offset=first, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
            )
            + marker
        )

    polling = Polling()
    data = transaction(0, commit=False) + transaction(3, commit=True) + transaction(6, commit=False)
    polling.arrives(0, data, 0, [AbortedRange(1, 0), AbortedRange(1, 6)])
    assert offsets(polling, 1) == [3]
    assert offsets(polling, 1) == [4]
    assert offsets(polling) == []
    assert polling.positions()[0] == 9


def test_damage_is_raised_after_what_came_before_it() -> None:
    polling = Polling()
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    polling.arrives(1, batch(0, 1))
    polling.arrives(0, batch(0, 2) + bytes(damaged))
    assert offsets(polling) == [0, 0, 1]
    for _ in range(2):
        with pytest.raises(PoisonRecordError, match="t-0 cannot be read at offset 2") as caught:
            offsets(polling)
        assert (caught.value.partition, caught.value.offset) == (TopicPartition("t", 0), 2)
        # Behind the whole batch: what lies between is as broken.
        assert caught.value.resume_at == 4
    assert polling.positions() == [2, 1]


def test_damage_does_not_take_other_partitions_rows_along() -> None:
    polling = Polling()
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    polling.arrives(0, bytes(damaged))
    with pytest.raises(PoisonRecordError):
        offsets(polling)
    polling.states[0].is_paused = True
    polling.arrives(1, batch(0, 1))
    polling.states[0].is_paused = False
    # The partition that is whole comes first now, and must not be lost behind the one that is not.
    seen: list[int] = []
    for _ in range(2):
        try:
            seen += offsets(polling)
        except PoisonRecordError:
            polling.states[0].is_paused = True
    assert seen == [0]


def test_at_least_one_record() -> None:
    with pytest.raises(UserError, match="at least one"):
        poll_arrow(Polling(), 0.0, 0)


def test_rows_that_were_decoded_survive_what_goes_wrong_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    polling = Polling()
    polling.arrives(0, batch(0, 3))
    polling.arrives(1, batch(0, 2))

    def failing(columns: RecordColumns, shape: TableShape, topic: str, partition: int) -> pa.RecordBatch:
        if partition == 1:
            raise pa.ArrowCapacityError("too much")
        return to_record_batch(columns, shape, topic, partition)

    with monkeypatch.context() as patched:
        patched.setattr(consuming, "to_record_batch", failing)
        assert offsets(polling) == [0, 1, 2]
        with pytest.raises(pa.ArrowCapacityError):
            offsets(polling)
    assert polling.positions() == [3, 0]
    assert offsets(polling) == [0, 1]


@pytest.mark.parametrize("checks", [True, False])
def test_checksums_are_checked_unless_that_is_not_wanted(checks: bool) -> None:
    polling = Polling()
    damaged = bytearray(batch(0, 2))
    damaged[-2] ^= 1
    fetched = CompletedFetch(polling.states[0], bytes(damaged), 0, len(damaged), 0, [], check_crcs=checks)
    polling._fetch_buffer.incoming.append(fetched)
    if checks:
        with pytest.raises(PoisonRecordError):
            offsets(polling)
    else:
        assert offsets(polling) == [0, 1]


def test_records_before_damage_are_there_for_a_table_amid_an_iteration() -> None:
    polling = Polling()
    damaged = bytearray(batch(3, 2))
    damaged[-1] ^= 1
    polling.arrives(0, batch(0, 3) + bytes(damaged))
    assert polling._fetch_buffer.refill(100)
    first = polling._fetch_buffer.pop()
    assert first is not None
    assert first.offset == 0
    assert offsets(polling) == [1, 2]
    with pytest.raises(PoisonRecordError):
        offsets(polling)
