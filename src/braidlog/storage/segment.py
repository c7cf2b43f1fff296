"""One segment of a log. Skeleton of the public face; bodies follow."""

from __future__ import annotations

from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool


class Segment:
    base_offset: int
    size: int
    # Largest timestamp of its records; -1 without any.
    max_timestamp: int
    # Last offset of the batch that holds it.
    offset_of_max_timestamp: int

    @staticmethod
    def open(
        files: Files, handles: HandlePool, directory: str, base_offset: int, *, suffix: str = ""
    ) -> Segment:
        """`suffix` is "" or ".cleaned" / ".swap" / ".deleted"."""
        raise NotImplementedError

    @property
    def largest_timestamp(self) -> int:
        """`max_timestamp`, or the file's modification time where no record carries one."""
        raise NotImplementedError

    @property
    def first_batch_timestamp(self) -> int:
        raise NotImplementedError

    @property
    def log_path(self) -> str:
        raise NotImplementedError

    def append(
        self,
        parts: list[bytes | memoryview],
        size: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """One batch: written at once, indexed as its interval asks."""
        raise NotImplementedError

    def read_at(self, size: int, position: int) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        """Write out the indexes and let go of the files."""
        raise NotImplementedError

    def remove(self) -> None:
        raise NotImplementedError
