"""Whose word on malloc counts."""

from __future__ import annotations

import pytest

from braidlog.client.malloc_tuning import is_tuned, keep_large_buffers


@pytest.mark.parametrize(
    ("environment", "tuned"),
    [
        ({}, False),
        ({"LD_PRELOAD": "/lib/libeatmydata.so"}, False),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=1"}, False),
        ({"MALLOC_TRIM_THRESHOLD_": "1"}, True),
        ({"MALLOC_MMAP_THRESHOLD_": "1"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=128"}, True),
        ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}, True),
    ],
)
def test_who_decided_already_is_left_alone(environment: dict[str, str], tuned: bool) -> None:
    assert is_tuned(environment) is tuned


def test_once_is_enough() -> None:
    keep_large_buffers()
    keep_large_buffers()
