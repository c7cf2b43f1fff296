"""Something that waits for a partition to grow."""

from __future__ import annotations

from braidlog.core.slices import ByteSlice
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record


def batch() -> ByteSlice:
    data = build_batch([Record(0, 1_700_000_000_000, None, b"v")], base_offset=0)
    return ByteSlice(data, 0, len(data))


class Waiter(DelayedOperation):
    def __init__(self, missing: int) -> None:
        super().__init__(missing)
        self.wakes = 0

    def on_complete(self) -> None:
        self.wakes += 1
