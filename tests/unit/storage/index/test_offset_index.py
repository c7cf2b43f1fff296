from __future__ import annotations

from pathlib import Path
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from support.index_files import BASE, offset_index, quick


def test_offset_entries_are_two_big_endian_numbers(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(BASE + 5, 4321)
    index.append(BASE + 2**31 - 1, 2**31 - 1)
    index.file.flush()
    assert (tmp_path / "i").read_bytes() == pack(">iiii", 5, 4321, 2**31 - 1, 2**31 - 1)


@given(st.data(), st.integers(0, 3000))
@quick
def test_offset_look_ups_agree_with_a_plain_search(tmp_path: Path, data: st.DataObject, count: int) -> None:
    (tmp_path / "i").unlink(missing_ok=True)
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
