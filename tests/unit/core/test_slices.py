from __future__ import annotations

import pytest

from braidlog.core.slices import ByteSlice, FileSlice


class Pages:
    """A file of a simulation."""

    def fileno(self) -> int:
        raise OSError("no descriptor")

    def pread(self, size: int, position: int) -> bytes:
        return b"0123456789"[position : position + size]


def test_a_range_of_a_buffer_is_not_copied_before_it_is_asked_for() -> None:
    buffer = b"headbodytail"
    found = ByteSlice(buffer, 4, 8)
    assert found.size == 4
    assert found.view().obj is buffer
    assert found.view() == found.tobytes() == b"body"


@pytest.mark.parametrize(("position", "size", "data"), [(0, 3, b"012"), (7, 3, b"789"), (9, 0, b"")])
def test_a_range_of_a_file_is_read_when_it_is_asked_for(position: int, size: int, data: bytes) -> None:
    assert FileSlice(Pages(), position, size).read() == data
