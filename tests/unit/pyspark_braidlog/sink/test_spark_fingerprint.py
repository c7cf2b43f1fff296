"""The same rows have the same fingerprint, in any order and however cut; other rows have another."""

from __future__ import annotations

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


def test_nothing_changes_nothing() -> None:
    assert of([]) == Fingerprint()
