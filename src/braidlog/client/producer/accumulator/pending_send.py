"""A record whose send is deferred because its caller must not wait (hot: compiled by mypyc)."""

from __future__ import annotations

from mypy_extensions import i64

from braidlog.client.producer.accumulator.buffer_pool import MemoryWaiter
from braidlog.client.producer.delivery import Delivery


class PendingSend:
    """A record that waits for metadata or memory on behalf of a thread that must not: one that runs an event loop."""

    __slots__ = ("delivery", "expires", "headers", "key", "memory", "partition", "size", "value")

    def __init__(
        self,
        delivery: Delivery,
        partition: i64,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        size: i64,
        expires: float,
    ) -> None:
        self.delivery = delivery
        self.partition: i64 = partition
        self.key: bytes | None = key
        self.value: bytes | None = value
        self.headers = headers
        self.size: i64 = size
        self.expires = expires
        self.memory: MemoryWaiter | None = None
