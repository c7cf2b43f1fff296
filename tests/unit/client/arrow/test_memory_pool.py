"""Whose word on memory counts."""

from __future__ import annotations

from braidlog.client.arrow.memory_pool import is_decided, table_pool


def test_who_decided_already_is_left_alone() -> None:
    assert not is_decided({})
    assert is_decided({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"})
    assert is_decided({"MALLOC_TRIM_THRESHOLD_": "1"})


def test_the_same_for_every_table() -> None:
    assert table_pool() is table_pool()
