from __future__ import annotations

import sys

import pytest

from braidlog.broker.allocator import keep_large_buffers


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is of Linux's C library")
def test_the_c_library_takes_the_settings() -> None:
    assert keep_large_buffers()
