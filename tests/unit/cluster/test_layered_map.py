from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.cluster.layered_map import LayeredMap

keys = st.integers(0, 300)


@given(
    st.lists(st.tuples(st.dictionaries(keys, st.integers(1, 9), max_size=60), st.lists(keys, max_size=20)), max_size=12)
)
def test_a_layered_map_is_a_dict(changes: list[tuple[dict[int, int], list[int]]]) -> None:
    layered: LayeredMap[int, int] = LayeredMap({1: 1, 2: 2})
    plain = {1: 1, 2: 2}
    versions = []
    for updates, removals in changes:
        layered = layered.changed(updates, removals)
        for key in removals:
            plain.pop(key, None)
        plain.update(updates)
        versions.append((layered, dict(plain)))
    for version, expected in versions:
        assert dict(version.items()) == expected
        assert len(version) == len(expected)
        assert sorted(version) == sorted(expected)
        assert all(
            (key in version) == (key in expected) and version.get(key) == expected.get(key) for key in range(301)
        )


def test_a_change_of_one_among_many_copies_little() -> None:
    many: LayeredMap[int, int] = LayeredMap({key: key + 1 for key in range(10_000)})
    changed = many.changed({5: 0 + 7})
    assert changed._base is many._base
    assert changed[5] == 7
    assert many[5] == 6
