"""The same rows have the same fingerprint, in any order and however cut; other rows have another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_braidlog.sink.fingerprint import Fingerprint

Row = tuple[bytes | None, bytes | None]

CELLS = st.none() | st.binary(max_size=40) | st.integers(0, 3).map(lambda more: b"long" * (127 + more))
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=30)


def of(rows: list[Row], before: Fingerprint | None = None, kind: str = "binary") -> Fingerprint:
    """With rows of others around them in the same buffers, as slices have."""
    keys = pa.array([b"before", *(key for key, _ in rows), b"after"], kind).slice(1, len(rows))
    values = pa.array([b"before", *(value for _, value in rows), b"after"], kind).slice(1, len(rows))
    return (before or Fingerprint()).with_rows(keys, values)


@given(ROWS, st.randoms(), st.integers(0, 30))
def test_order_and_cuts_do_not_matter(rows: list[Row], draw: object, cut: int) -> None:
    shuffled = list(rows)
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    assert of(shuffled[cut:], of(shuffled[:cut])) == of(rows) == of(rows, kind="large_binary")


@given(ROWS, ROWS)
def test_other_rows_are_told_apart(some: list[Row], others: list[Row]) -> None:
    def counted(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=repr)

    assert (of(some) == of(others)) == (counted(some) == counted(others))


def test_it_counts_rows_and_bytes() -> None:
    found = of([(b"ab", b"cde"), (None, b"f"), (b"g", None)])
    assert (found.rows, found.key_bytes, found.value_bytes) == (3, 3, 4)


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        # The same bytes in other cells, other bytes of the same sum, null and empty.
        ([(b"a", b"b")], [(b"b", b"a")]),
        ([(b"1", b"x"), (b"2", b"y")], [(b"1", b"y"), (b"2", b"x")]),
        ([(b"k", b"row 1"), (b"k", b"row 4")], [(b"k", b"row 2"), (b"k", b"row 3")]),
        ([(None, b"a")], [(b"", b"a")]),
        ([(b"k", None)], [(b"k", b"")]),
        ([(b"k", b"a\0")], [(b"k", b"\0a")]),
        ([(b"k", b"x" * 600 + b"y")], [(b"k", b"y" + b"x" * 600)]),
    ],
)
def test_likely_mistakes_are_seen(rows: list[Row], others: list[Row]) -> None:
    assert of(rows) != of(others)


def test_text_is_its_bytes_and_no_key_column_is_like_null_keys() -> None:
    values = pa.array(["a", "bc"])
    assert Fingerprint().with_rows(None, values) == Fingerprint().with_rows(None, values.cast(pa.binary()))
    assert Fingerprint().with_rows(None, values).rows == 2


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_layouts_of_the_same_bytes_are_the_same_rows(kind: pa.DataType) -> None:
    plain = pa.array(["a", None, "longer than a view holds within itself", "", "a"])
    assert Fingerprint().with_rows(plain.cast(kind), plain.cast(kind)) == Fingerprint().with_rows(plain, plain)


def test_bytes_under_a_null_do_not_count() -> None:
    starts, data = pa.py_buffer(np.array([0, 1, 4, 5], np.int32).tobytes()), pa.py_buffer(b"axyzb")
    hidden = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), starts, data])
    assert hidden.to_pylist() == [b"a", None, b"b"]
    assert Fingerprint().with_rows(None, hidden) == Fingerprint().with_rows(None, pa.array([b"a", None, b"b"]))


@pytest.mark.parametrize("kind", ["binary", "large_string"])
def test_nothing_but_nulls_and_nothing_at_all(kind: str) -> None:
    nulls = pa.nulls(3, kind)
    assert Fingerprint().with_rows(nulls, nulls).rows == 3
    assert Fingerprint().with_rows(nulls.slice(3), nulls.slice(3)) == Fingerprint()
    empty = pa.array([""], kind)
    assert Fingerprint().with_rows(empty, empty) != Fingerprint().with_rows(nulls.slice(2), nulls.slice(2))


def test_nothing_changes_nothing() -> None:
    assert of([]) == Fingerprint()
