"""The consumer for programs that run an event loop: the same one, waiting in a thread of its own.

    async with AsyncConsumer("orders", bootstrap_servers="localhost:9092", group_id="shop") as consumer:
        async for record in consumer:
            ...

Only waiting happens in that thread; records are taken in the loop's, without a pause between taking and returning
them: an `await` that is cancelled ends at once and loses none.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack

from braidlog.client.arguments import ByPartition, Many, Partitions
from braidlog.client.cluster_view import PartitionView, TopicView
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.offsets.offset_and_metadata import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import ClosedError, WakeupError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.typed_settings import ConsumerSettings

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Offsets = ByPartition[OffsetAndMetadata | int]

# How long the thread waits at a time; `async for` waits again and again.
_WAIT_S: Final = 60.0


class _ConsumerThread:
    """Where the consumer's calls run, one after the other; one that only waits for records makes way for all others."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="braidlog async consumer")
        # Held by the task that uses the consumer until its call in the thread is over, also when the task ended before.
        self._lock = asyncio.Lock()
        # Calls that want it. Changed in the loop's thread.
        self._wanted = 0
        # Between the loop's side, which wakes the wait that runs in the thread, and that wait.
        self._guard = threading.Lock()
        self._is_waiting = False

    @property
    def is_free(self) -> bool:
        return not self._lock.locked()

    async def call(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Run a call; a wait for records makes way for it."""
        self._wanted += 1
        try:
            self._wake()
            await self._lock.acquire()
        finally:
            self._wanted -= 1
        running = asyncio.get_running_loop().run_in_executor(self._pool, lambda: call(*arguments, **keywords))
        running.add_done_callback(self._leave)
        # A task that is cancelled goes; its call goes on to its end.
        return await asyncio.shield(running)

    async def wait(self, look: Callable[[float], bool], timeout: float, take: Callable[[], list[R]]) -> list[R]:
        """What `take` takes in the loop's thread after `look` found something; none when it found none or made way."""
        await self._lock.acquire()
        is_given_up = threading.Event()
        running = asyncio.get_running_loop().run_in_executor(self._pool, self._look, look, timeout, is_given_up)
        try:
            found = await asyncio.shield(running)
        except asyncio.CancelledError:
            is_given_up.set()
            self._wake()
            running.add_done_callback(self._leave)
            raise
        except BaseException:
            self._lock.release()
            raise
        try:
            return take() if found else []
        finally:
            self._lock.release()

    def _look(self, look: Callable[[float], bool], timeout: float, is_given_up: threading.Event) -> bool:
        with self._guard:
            if is_given_up.is_set():
                return False
            self._is_waiting = True
            # However many calls come, each wait has at least a look.
            wait_s = 0.0 if self._wanted else timeout
        try:
            return look(wait_s)
        except WakeupError:
            return False
        finally:
            with self._guard:
                self._is_waiting = False
                # One that came too late must not hit the next call.
                self._consumer._ignore_wakeup()

    def _wake(self) -> None:
        with self._guard:
            if self._is_waiting:
                self._consumer.wakeup()

    def _leave(self, running: asyncio.Future[Any]) -> None:
        self._lock.release()
        # The result of a call whose task has ended is dropped.
        if not running.cancelled():
            running.exception()

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class AsyncConsumer:
    """Methods are `Consumer`'s, awaited. A listener is called in the waiting thread, where it may use `consumer`."""

    def __init__(
        self, first: Mapping[str, Any] | str | None = None, /, *topics: str, **settings: Unpack[ConsumerSettings]
    ) -> None:
        # For listeners, which are called in its thread; elsewhere only between two awaits.
        self.consumer = Consumer(first, *topics, **settings)
        self._thread = _ConsumerThread(self.consumer)
        self._records = iter(self.consumer)
        # One task waits for records at a time, since two would interrupt each other.
        self._poll_lock = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Async{repr(self.consumer)[1:]}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("an AsyncConsumer cannot be copied or pickled; make one where it is used")

    async def _call(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        self._check_open()
        return await self._thread.call(call, *arguments, **keywords)

    def _check_open(self) -> None:
        self.consumer._one_thread.check()
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")

    # What to read

    async def subscribe(
        self, topics: Many[str] | str | re.Pattern[str], listener: RebalanceListener | None = None
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

    async def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, waiting so long for the first."""
        clock = self.consumer._clock
        deadline = clock.monotonic() + timeout
        try:
            async with asyncio.timeout(max(timeout, 0.0)):
                await self._poll_lock.acquire()
        except TimeoutError:
            return []
        try:
            while True:
                self._check_open()
                left = min(max(deadline - clock.monotonic(), 0.0), _WAIT_S)
                found = await self._thread.wait(self.consumer.wait, left, lambda: self.consumer.poll(0.0, max_records))
                if found or clock.monotonic() >= deadline:
                    return found
        finally:
            self._poll_lock.release()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if self._thread.is_free and self._records.is_ready():
            return next(self._records)
        async with self._poll_lock:
            while not self._closed:
                self.consumer._one_thread.check()
                try:
                    found = await self._thread.wait(self.consumer.wait, _WAIT_S, lambda: [next(self._records)])
                except ClosedError:
                    break
                if found:
                    return found[0]
        raise StopAsyncIteration

    # Positions

    async def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        await self._call(self.consumer.seek, partition, offset)

    async def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        await self._call(self.consumer.seek_to_beginning, partitions)

    async def seek_to_end(self, partitions: Partitions = ()) -> None:
        await self._call(self.consumer.seek_to_end, partitions)

    async def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        return await self._call(self.consumer.position, partition, timeout)

    async def pause(self, partitions: Partitions) -> None:
        await self._call(self.consumer.pause, partitions)

    async def resume(self, partitions: Partitions) -> None:
        await self._call(self.consumer.resume, partitions)

    async def paused(self) -> frozenset[TopicPartition]:
        return await self._call(self.consumer.paused)

    # Offsets

    async def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._call(self.consumer.beginning_offsets, partitions, timeout)

    async def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        return await self._call(self.consumer.end_offsets, partitions, timeout)

    async def offsets_for_times(
        self, times_ms: ByPartition[int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._call(self.consumer.offsets_for_times, times_ms, timeout)

    async def lag(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        return await self._call(self.consumer.lag, partition, timeout)

    async def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        await self._call(self.consumer.commit, offsets, timeout)

    async def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._call(self.consumer.committed, partitions, timeout)

    async def group_metadata(self) -> ConsumerGroupMetadata:
        return await self._call(self.consumer.group_metadata)

    # The cluster

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        return await self._call(self.consumer.partitions_for, topic, timeout)

    async def list_topics(self, timeout: float | None = None) -> dict[str, TopicView]:
        return await self._call(self.consumer.list_topics, timeout)

    # Life

    async def close(self, timeout: float | None = None) -> None:
        """Commit if that is automatic, leave the group, close the connections."""
        if self._closed or self.consumer._one_thread.is_forked:
            return
        try:
            await self._call(self.consumer.close, timeout)
        finally:
            self._closed = True
            self._thread.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


# The docstrings of Consumer's methods hold here, too.
for _name, _method in vars(AsyncConsumer).items():
    if not _name.startswith("_") and _method.__doc__ is None:
        _method.__doc__ = getattr(Consumer, _name).__doc__
