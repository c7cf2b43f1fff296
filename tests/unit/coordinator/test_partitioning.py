from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.partitioning import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-12345", 158_455_506),
        ("group", 98_629_247),
        ("polygenelubricants", -2_147_483_648),
        ("grüße", 98_768_023),
        ("日本", 835_047),
        ("😀", 1_772_899),
    ],
)
def test_hashes_are_those_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_smallest_integer_has_no_absolute_value() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 200))
def test_every_name_has_a_partition(name: str, partitions: int) -> None:
    assert 0 <= partition_for(name, partitions) < partitions
