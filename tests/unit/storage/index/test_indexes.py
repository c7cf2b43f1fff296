"""Offset, time and transaction index, in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.offset_index import OffsetIndex
from braidlog.storage.index.time_index import TimeIndex
from braidlog.storage.index.transaction_index import AbortedTxn, TransactionIndex

BASE = 1000
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def offset_index(root: Path, name: str = "i", max_bytes: int = 1 << 20) -> OffsetIndex:
    files = OsFiles()
    return OffsetIndex(files, HandlePool(files, 4), f"{root}/{name}", BASE, max_bytes)


def time_index(root: Path, name: str = "t", max_bytes: int = 1 << 20) -> TimeIndex:
    files = OsFiles()
    return TimeIndex(files, HandlePool(files, 4), f"{root}/{name}", BASE, max_bytes)


def txn_index(root: Path) -> TransactionIndex:
    files = OsFiles()
    return TransactionIndex(files, HandlePool(files, 4), f"{root}/x")


def fresh(path: Path) -> None:
    path.unlink(missing_ok=True)


# --- offsets


def test_offset_entries_are_two_big_endian_numbers(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(BASE + 5, 4321)
    index.append(BASE + 2**31 - 1, 2**31 - 1)
    index.file.flush()
    assert (tmp_path / "i").read_bytes() == pack(">iiii", 5, 4321, 2**31 - 1, 2**31 - 1)


@given(st.data(), st.integers(0, 3000))
@quick
def test_offset_look_ups_agree_with_a_plain_search(tmp_path: Path, data: st.DataObject, count: int) -> None:
    fresh(tmp_path / "i")
    index = offset_index(tmp_path)
    entries = [(BASE + 3 * number + 2, 100 * number + 60) for number in range(count)]
    for offset, position in entries:
        index.append(offset, position)
    if data.draw(st.booleans()):
        index.file.flush_and_unload()
        index = offset_index(tmp_path)
    assert index.count == count
    for probe in data.draw(st.lists(st.integers(-5, 3 * count + 10), min_size=1, max_size=8)):
        expected = max((position for offset, position in entries if offset <= BASE + probe), default=0)
        assert index.position_for(BASE + probe) == expected
        floor = max((position for _, position in entries if position <= 40 * probe), default=0)
        assert index.position_at_or_below(40 * probe) == floor
    cut = data.draw(st.integers(0, 3 * count + 5))
    index.truncate_to_offset(BASE + cut)
    kept = [entry for entry in entries if entry[0] < BASE + cut]
    assert [index.entry(number) for number in range(index.count)] == kept
    index.append(BASE + 10 * count + 100, 10**6)
    index.file.flush_and_unload()
    reopened = offset_index(tmp_path)
    assert reopened.last() == (BASE + 10 * count + 100, 10**6)
    assert (tmp_path / "i").stat().st_size == 8 * (len(kept) + 1)


@given(st.integers(0, 700), st.integers(0, 700))
@quick
def test_zeros_at_the_end_are_no_entries(tmp_path: Path, count: int, zeros: int) -> None:
    (tmp_path / "i").write_bytes(b"".join(pack(">ii", n + 1, n + 1) for n in range(count)) + bytes(8 * zeros))
    (tmp_path / "t").write_bytes(b"".join(pack(">qi", n + 1, n) for n in range(count)) + bytes(12 * zeros))
    offsets, times = offset_index(tmp_path), time_index(tmp_path)
    assert offsets.count == times.count == count
    offsets.append(BASE + 5000, 5000)
    times.append(5000, BASE + 5000)
    offsets.file.flush()
    times.file.flush()
    assert (tmp_path / "i").stat().st_size == 8 * (count + 1)
    assert offset_index(tmp_path).last() == (BASE + 5000, 5000)
    assert time_index(tmp_path).last() == (5000, BASE + 5000)


def test_an_index_knows_when_it_is_full(tmp_path: Path) -> None:
    offsets = offset_index(tmp_path, max_bytes=20)
    times = time_index(tmp_path, max_bytes=40)
    for number in range(1, 3):
        assert not offsets.is_full
        assert not times.is_full
        offsets.append(BASE + number, number)
        times.append(number, BASE + number)
    assert offsets.is_full
    assert times.is_full  # one place is kept for the entry that closing adds


def test_flushes_append_only_what_is_new(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(BASE + 1, 10)
    index.file.flush()
    with (tmp_path / "i").open("r+b") as file:
        file.write(b"\xee")
    index.append(BASE + 2, 20)
    index.file.flush()
    assert (tmp_path / "i").read_bytes() == b"\xee" + pack(">iiii", 1, 10, 2, 20)[1:]


def test_sanity(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.check(0)
    index.append(BASE + 1, 10)
    index.check(11)
    with pytest.raises(CorruptLogError, match="position 10"):
        index.check(10)
    (tmp_path / "j").write_bytes(bytes(11))
    with pytest.raises(CorruptLogError, match="11 bytes are not whole 8-byte"):
        offset_index(tmp_path, "j").check(100)
    with pytest.raises(CorruptLogError, match="11 bytes are not whole 12-byte"):
        time_index(tmp_path, "j").check()
    (tmp_path / "k").write_bytes(pack(">qi", 5, -3))
    with pytest.raises(CorruptLogError, match="offset 997"):
        time_index(tmp_path, "k").check()


# --- timestamps


def test_time_entries_are_a_timestamp_and_an_offset(tmp_path: Path) -> None:
    index = time_index(tmp_path)
    index.append(1_700_000_000_000, BASE + 7)
    index.append(1_700_000_000_000, BASE + 9)  # not younger
    index.append(1_600_000_000_000, BASE + 9)
    index.append(1_800_000_000_000, BASE + 3)  # goes back
    index.file.flush()
    assert (tmp_path / "t").read_bytes() == pack(">qi", 1_700_000_000_000, 7)


@given(st.data(), st.integers(0, 1500))
@quick
def test_time_look_ups_agree_with_a_plain_search(tmp_path: Path, data: st.DataObject, count: int) -> None:
    fresh(tmp_path / "t")
    index = time_index(tmp_path)
    entries = [(50 + 10 * number, BASE + 2 * number) for number in range(count)]
    for timestamp, offset in entries:
        index.append(timestamp, offset)
    if data.draw(st.booleans()):
        index.file.flush_and_unload()
        index = time_index(tmp_path)
    for probe in data.draw(st.lists(st.integers(-5, 10 * count + 100), min_size=1, max_size=8)):
        expected = max((entry for entry in entries if entry[0] <= probe), default=(-1, BASE))
        assert index.floor(probe) == expected
    cut = BASE + data.draw(st.integers(0, 2 * count + 3))
    index.truncate_to_offset(cut)
    kept = [entry for entry in entries if entry[1] < cut]
    assert [index.entry(number) for number in range(index.count)] == kept


# --- transactions


def test_aborted_transactions_are_found_by_offset_range(tmp_path: Path) -> None:
    index = txn_index(tmp_path)
    assert not (tmp_path / "x").exists()
    first = AbortedTxn(1, 0, 10, 11)
    second = AbortedTxn(2, 5, 20, 13)
    third = AbortedTxn(3, 13, 30, 31)
    for txn in (first, second, third):
        index.append(txn)
    assert (tmp_path / "x").read_bytes() == b"".join(pack(">hqqqq", 0, *txn) for txn in (first, second, third))
    for reader in (index, txn_index(tmp_path)):
        for start, end, expected, complete in [
            (0, 100, [first, second, third], False),
            (0, 5, [first], True),
            (11, 12, [second], True),
            (11, 13, [second], True),
            (11, 14, [second, third], True),
            (21, 22, [third], True),
            (31, 99, [], False),
        ]:
            found: list[AbortedTxn] = []
            assert reader.collect(start, end, found) == complete
            assert found == expected
    index.truncate_to_offset(20)
    assert txn_index(tmp_path).entries() == [first]
    index.reset()
    assert txn_index(tmp_path).entries() == []


@pytest.mark.parametrize("data", [bytes(33), pack(">hqqqq", 1, 1, 0, 10, 11), pack(">hqqqq", 0, 1, 10, 0, 11)])
def test_a_broken_transaction_index_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(CorruptLogError, match=str(tmp_path)):
        txn_index(tmp_path).entries()
