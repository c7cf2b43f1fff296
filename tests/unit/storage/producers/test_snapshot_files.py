from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import OsFiles
from braidlog.storage.producers.producer_state_manager import BatchMetadata, ProducerStateEntry, ProducerStateManager
from braidlog.storage.producers.snapshot_files import SnapshotFiles, decode_snapshot, encode_snapshot, snapshot_offset


def entry(
    producer_id: int, last_sequence: int = 4, txn_first_offset: int = -1, timestamp: int = 1000
) -> ProducerStateEntry:
    batches = [BatchMetadata(last_sequence, 9, 1, timestamp)]
    return ProducerStateEntry(producer_id, 3, batches, timestamp, 2, txn_first_offset)


def fields(entries: list[ProducerStateEntry]) -> list[tuple[int, ...]]:
    return [
        (
            e.producer_id,
            e.epoch,
            e.last_sequence,
            e.last_offset,
            e.last_offset_delta,
            e.last_timestamp,
            e.coordinator_epoch,
            e.txn_first_offset,
        )
        for e in entries
    ]


def test_the_bytes_are_kafkas() -> None:
    body = bytes.fromhex(
        "00000001"  # one producer
        "0000000000000007" "0003" "00000004" "0000000000000009" "00000001"
        "00000000000003e8" "00000002" "0000000000000008"
    )  # fmt: skip
    assert encode_snapshot([entry(7, txn_first_offset=8)]) == b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body


i64s = st.integers(-1, 2**63 - 1)
i32s = st.integers(-1, 2**31 - 1)


@given(st.lists(st.tuples(i64s, st.integers(-1, 2**15 - 1), i32s, st.integers(0, 2**63 - 1), i32s, i64s, i32s, i64s)))
def test_what_is_written_is_read(rows: list[tuple[int, ...]]) -> None:
    entries = [
        ProducerStateEntry(pid, epoch, [BatchMetadata(sequence, offset, delta, stamp)], stamp, coordinator, txn)
        for pid, epoch, sequence, offset, delta, stamp, coordinator, txn in rows
    ]
    assert fields(decode_snapshot(encode_snapshot(entries), "x")) == fields(entries)


def test_a_producer_without_batches_stays_one() -> None:
    (read,) = decode_snapshot(encode_snapshot([ProducerStateEntry(1, 0, [], 5, 0, -1)]), "x")
    assert read.batches == []


@pytest.mark.parametrize("damage", ["empty", "short", "version", "flip", "long"])
def test_a_broken_snapshot_is_named(damage: str) -> None:
    data = bytearray(encode_snapshot([entry(1)]))
    if damage == "empty":
        data = bytearray()
    elif damage == "short":
        del data[-1:]
    elif damage == "version":
        data[1] = 2
    elif damage == "flip":
        data[20] ^= 1
    else:
        data += b"\0"
    with pytest.raises(CorruptLogError, match=r"/p/x\.snapshot"):
        decode_snapshot(bytes(data), "/p/x.snapshot")


def test_names() -> None:
    assert snapshot_offset("00000000000000000042.snapshot") == 42
    assert snapshot_offset("00000000000000000042.log") is None
    assert snapshot_offset("x.snapshot") is None


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotFiles:
    files = SnapshotFiles(OsFiles(), str(tmp_path))
    for offset in (10, 20, 30):
        state = ProducerStateManager("p", 10_000)
        state.restore(entry(offset))
        state.end_offset = offset
        files.write(state, sync=False)
    return files


def loaded(snapshots: SnapshotFiles, start: int, end: int, now_ms: int = 1000) -> tuple[list[int], int]:
    state = ProducerStateManager("p", 10_000)
    snapshots.load(state, start, end, now_ms)
    return sorted(state.producers), state.end_offset


def test_the_newest_snapshot_within_the_log_is_loaded(snapshots: SnapshotFiles) -> None:
    assert loaded(snapshots, 0, 99) == ([30], 30)
    assert loaded(snapshots, 0, 30) == ([30], 30)
    assert loaded(snapshots, 0, 29) == ([20], 20)
    assert loaded(snapshots, 0, 9) == ([], 0)
    assert loaded(snapshots, 20, 29) == ([], 20)
    assert loaded(snapshots, 0, 99, now_ms=11_000) == ([], 30)


def test_a_corrupt_snapshot_is_removed_and_the_one_before_taken(snapshots: SnapshotFiles, tmp_path: Path) -> None:
    path = tmp_path / f"{30:020d}.snapshot"
    path.write_bytes(b"nonsense")
    assert loaded(snapshots, 0, 99) == ([20], 20)
    assert not path.exists()
    assert snapshots.offsets == [10, 20]


def test_open_transactions_come_back_in_offset_order(tmp_path: Path) -> None:
    files = SnapshotFiles(OsFiles(), str(tmp_path))
    state = ProducerStateManager("p", 10_000)
    for producer_id, first in [(1, 9), (2, 3), (3, 6)]:
        state.restore(entry(producer_id, txn_first_offset=first))
    state.end_offset = 12
    files.write(state, sync=True)
    again = ProducerStateManager("p", 10_000)
    files.load(again, 0, 12, 10**9)
    assert list(again.ongoing.items()) == [(3, 2), (6, 3), (9, 1)]
    assert again.first_unstable_offset() == 3


def test_strays_go_and_the_one_that_closing_left_stays(snapshots: SnapshotFiles, tmp_path: Path) -> None:
    snapshots.remove_stray([0, 20])
    assert snapshots.offsets == [20, 30]
    snapshots.remove_stray([0, 40])
    assert snapshots.offsets == []
    assert list(tmp_path.iterdir()) == []


def test_snapshots_outside_of_the_log_go(snapshots: SnapshotFiles) -> None:
    snapshots.remove_outside(10, 25)
    assert snapshots.offsets == [20]
