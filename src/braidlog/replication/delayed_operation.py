"""Fetches that wait for data: woken by the append that completes them, never by asking again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from braidlog.replication.partition import Partition


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation:
    """Something that waits until enough bytes became readable over the partitions it watches.

    `missing` counts down with every append to any of them; the append that takes it to zero, or anything that changes
    what the reader's answer would be (a leader change, a deletion), wakes it, once.
    """

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.woken = False
        self._watched: list[Partition] = []

    def watch(self, partition: Partition) -> None:
        self._watched.append(partition)
        partition.readers.append(self)

    def grown(self, size: int) -> None:
        self.missing -= size
        if self.missing <= 0:
            self.wake()

    def wake(self) -> None:
        if self.woken:
            return
        self.woken = True
        for partition in self._watched:
            partition.readers.remove(self)
        self._watched = []
        self.on_complete()

    def cancel(self) -> None:
        """Stop waiting without being woken: the peer is gone."""
        self.woken = True
        for partition in self._watched:
            partition.readers.remove(self)
        self._watched = []

    def on_complete(self) -> None:
        raise NotImplementedError
