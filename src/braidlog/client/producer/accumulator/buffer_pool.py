"""The memory that records may take before they are acknowledged (hot: compiled by mypyc).

Bytes are reserved as batches grow and released when they are done. A caller that finds too few waits in line: first
come, first served, and a later one never gets what the first in line still lacks. The accumulator's lock guards it all.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque

from librt.strings import BytesWriter
from mypy_extensions import i64


class MemoryWaiter:
    """A place in the line. Threads sleep on `lock`; for a waiter without one the engine looks."""

    __slots__ = ("granted", "lock", "needed")

    def __init__(self, needed: int, sleeps: bool) -> None:
        self.needed: i64 = needed
        self.granted = False
        self.lock: LockType | None = None
        if sleeps:
            self.lock = allocate_lock()
            self.lock.acquire()


class BufferPool:
    __slots__ = ("available", "exhausted", "spare", "spare_most", "waiters")

    def __init__(self, limit: int, batch_size: int) -> None:
        self.available: i64 = limit
        self.waiters: deque[MemoryWaiter] = deque()
        # How often a caller had to wait, for the metrics.
        self.exhausted: i64 = 0
        # Writers keep the memory that they grew to.
        self.spare: list[BytesWriter] = []
        self.spare_most: i64 = min(64, max(1, limit // max(batch_size, 1)))

    def reserve(self, size: i64) -> bool:
        """Take so many bytes, unless there are too few or others wait for them."""
        if size > self.available or len(self.waiters) > 0:
            return False
        self.available -= size
        return True

    def enqueue(self, size: i64, sleeps: bool) -> MemoryWaiter:
        waiter = MemoryWaiter(size, sleeps)
        self.waiters.append(waiter)
        self.exhausted += 1
        return waiter

    def cancel_wait(self, waiter: MemoryWaiter) -> None:
        """Leave the line; what was granted meanwhile goes to the next."""
        if waiter.granted:
            self.release(waiter.needed)
        elif waiter in self.waiters:
            self.waiters.remove(waiter)
            self._serve()

    def release(self, size: i64) -> bool:
        """Whether a waiter without a thread of its own got memory: the engine has to look."""
        self.available += size
        return self._serve() if len(self.waiters) > 0 else False

    def wake_all_waiters(self) -> None:
        """No more memory is granted: wake all waiters, so that they see why."""
        while len(self.waiters) > 0:
            waiter = self.waiters.popleft()
            if waiter.lock is not None:
                waiter.lock.release()

    def _serve(self) -> bool:
        for_engine = False
        while len(self.waiters) > 0 and self.waiters[0].needed <= self.available:
            waiter = self.waiters.popleft()
            self.available -= waiter.needed
            waiter.granted = True
            if waiter.lock is not None:
                waiter.lock.release()
            else:
                for_engine = True
        return for_engine

    def writer(self) -> BytesWriter:
        return self.spare.pop() if self.spare else BytesWriter()

    def recycle(self, writer: BytesWriter) -> None:
        if len(self.spare) < self.spare_most:
            writer.truncate(0)
            self.spare.append(writer)
