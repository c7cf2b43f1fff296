from __future__ import annotations

from pathlib import Path
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from support.index_files import BASE, quick, time_index


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
    (tmp_path / "t").unlink(missing_ok=True)
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
