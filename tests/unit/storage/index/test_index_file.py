"""What offset and time index have in common: entries of a fixed size, in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import CorruptLogError
from support.index_files import BASE, offset_index, quick, time_index


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
