"""The consumer for programs that run an event loop: the same one, waiting in a thread of its own.

    async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="shop") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            ...

Only waiting happens in that thread; records are taken in the loop's, without a pause between taking and returning
them: an `await` that is cancelled ends at once and loses none.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from braidlog.client.consumer.consumer import Consumer, Partitions
from braidlog.client.consumer.listener import RebalanceListener
from braidlog.client.consumer.offsets import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import ClosedError, WakeupError
from braidlog.client.view import PartitionView, TopicView
from braidlog.core.types import TopicPartition

P = ParamSpec("P")
T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]

# How long the thread waits at a time; `async for` waits for ever, turn by turn.
_TURN_S: Final = 60.0


class AsyncConsumer:
    """Methods are `Consumer`'s, awaited. A listener is called in the waiting thread, where it may use `consumer`."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        # For listeners, which are called in its thread; elsewhere only between two awaits.
        self.consumer = Consumer(config, **settings)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="braidlog async consumer")
        self._records = iter(self.consumer)
        # Tasks that wait for records: they hold the thread, and make way for whoever else needs it.
        self._waiting = 0
        self._closed = False

    async def _call(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Run in the consumer's thread, before those who only wait for records."""
        if self._waiting:
            self.consumer.wakeup()
        return await self._in_thread(call, *arguments, **keywords)

    async def _in_thread(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")

        def work() -> T:
            try:
                return call(*arguments, **keywords)
            except WakeupError:
                # Meant for a call before this one, which had just ended by itself.
                return call(*arguments, **keywords)

        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(_ended)
            raise

    # What to read

    async def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], listener: RebalanceListener | None = None
    ) -> None:
        await self._call(self.consumer.subscribe, topics, listener)

    async def assign(self, partitions: Partitions) -> None:
        await self._call(self.consumer.assign, partitions)

    async def unsubscribe(self) -> None:
        await self._call(self.consumer.unsubscribe)

    async def subscription(self) -> frozenset[str]:
        return await self._call(self.consumer.subscription)

    async def assignment(self) -> frozenset[TopicPartition]:
        return await self._call(self.consumer.assignment)

    # Records

    async def poll(self, timeout_s: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, waiting so long for the first."""
        return self.consumer.poll(0.0, max_records) if await self._wait(timeout_s) else []

    async def _wait(self, timeout_s: float) -> bool:
        """Whether records are there; cancelled, it stops the wait in the thread."""
        deadline = time.monotonic() + timeout_s
        self._waiting += 1
        try:
            while True:
                left = max(deadline - time.monotonic(), 0.0)
                if await self._in_thread(self._wait_in_thread, min(left, _TURN_S)):
                    return True
                if time.monotonic() >= deadline:
                    return False
        except asyncio.CancelledError:
            self.consumer.wakeup()
            raise
        finally:
            self._waiting -= 1

    def _wait_in_thread(self, timeout_s: float) -> bool:
        try:
            return self.consumer.wait(timeout_s)
        except WakeupError:
            return False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while not self._records.is_ready():
            if self._closed:
                raise StopAsyncIteration
            await self._wait(_TURN_S)
        return next(self._records)

    # Positions

    async def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        await self._call(self.consumer.seek, partition, offset)

    async def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        await self._call(self.consumer.seek_to_beginning, partitions)

    async def seek_to_end(self, partitions: Partitions = ()) -> None:
        await self._call(self.consumer.seek_to_end, partitions)

    async def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        return await self._call(self.consumer.position, partition, timeout_s)

    async def pause(self, partitions: Partitions) -> None:
        await self._call(self.consumer.pause, partitions)

    async def resume(self, partitions: Partitions) -> None:
        await self._call(self.consumer.resume, partitions)

    async def paused(self) -> frozenset[TopicPartition]:
        return await self._call(self.consumer.paused)

    # Offsets

    async def beginning_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._call(self.consumer.beginning_offsets, partitions, timeout_s)

    async def end_offsets(self, partitions: Partitions, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        return await self._call(self.consumer.end_offsets, partitions, timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._call(self.consumer.offsets_for_times, times_ms, timeout_s)

    async def lag(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        return await self._call(self.consumer.lag, partition, timeout_s)

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        await self._call(self.consumer.commit, offsets, timeout_s)

    async def committed(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._call(self.consumer.committed, partitions, timeout_s)

    async def group_metadata(self) -> GroupMetadata:
        return await self._call(self.consumer.group_metadata)

    # The cluster

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionView]:
        return await self._call(self.consumer.partitions_for, topic, timeout_s)

    async def list_topics(self, timeout_s: float | None = None) -> dict[str, TopicView]:
        return await self._call(self.consumer.list_topics, timeout_s)

    # Life

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit if that is automatic, leave the group, close the connections."""
        if self._closed:
            return
        try:
            await self._call(self.consumer.close, timeout_s)
        finally:
            self._closed = True
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _ended(running: asyncio.Future[Any]) -> None:
    """Of a call whose caller is gone: what it came to has nobody to hear of it."""
    if not running.cancelled():
        running.exception()
