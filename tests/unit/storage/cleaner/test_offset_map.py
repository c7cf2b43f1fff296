from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.storage.cleaner.offset_map import NOT_FOUND, SLOT_BYTES, OffsetMap


@given(st.lists(st.binary(max_size=4), max_size=60))
def test_it_is_a_dict_of_last_offsets(keys: list[bytes]) -> None:
    offsets = OffsetMap(100 * SLOT_BYTES)
    model: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
        model[key] = offset
    assert offsets.size == len(model)
    assert {key: offsets.get(key) for key in keys} == model
    assert offsets.get(b"never put") == NOT_FOUND
    assert offsets.latest_offset == len(keys) - 1


def test_when_full_only_known_keys_may_change() -> None:
    offsets = OffsetMap(11 * SLOT_BYTES, load_factor=0.5)
    for number in range(5):
        assert offsets.put(b"%d" % number, number)
    assert offsets.is_full
    assert not offsets.put(b"another", 5)
    assert offsets.latest_offset == 4
    assert offsets.put(b"3", 6)
    assert offsets.get(b"3") == 6
    assert offsets.get(b"another") == NOT_FOUND


def test_a_completely_full_map_still_ends_its_searches() -> None:
    offsets = OffsetMap(6 * SLOT_BYTES, load_factor=1.0)
    put = sum(offsets.put(b"%d" % number, number) for number in range(10))
    assert put == 4
    assert offsets.get(b"absent") == NOT_FOUND


def test_a_few_offsets_take_a_small_map() -> None:
    offsets = OffsetMap(1 << 30, most_keys=100)
    assert offsets.slots < 250
    assert offsets.capacity >= 100


def test_offset_zero_is_an_offset() -> None:
    offsets = OffsetMap(10 * SLOT_BYTES)
    offsets.put(b"k", 0)
    assert offsets.get(b"k") == 0


def test_covering_counts_records_that_leave_no_entry() -> None:
    offsets = OffsetMap(10 * SLOT_BYTES)
    offsets.put(b"k", 3)
    offsets.cover(9)
    offsets.cover(7)
    assert offsets.latest_offset == 9
