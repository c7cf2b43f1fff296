"""Lets a program's thread do the engine's work while the engine sleeps (hot: compiled by mypyc).

    send()      writes the request itself, if there is nothing else to do
    result()    waits for the socket itself, takes the answer, and returns

Without it such a record goes through two threads four times, and each change costs more than all the rest. The engine's
thread is held meanwhile (`Engine.busy`), but not during a wait. What is not quite simple (an error, a lost connection,
a callback of the program's, a response that takes long) is left to the engine, which finds everything as if it had
done the work itself.
"""

from __future__ import annotations

import asyncio
import time
from _thread import LockType
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from braidlog.client.errors import ClientError, NoConnection
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch, Waiter, notify_waiters
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
from braidlog.client.producer.delivery import CompletionLatch
from braidlog.client.producer.produce_requests import InFlightRequest, ProduceRequests, responses_by_batch
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.outbound.pipelined_connection import OnAnswer, PipelinedConnection, TakeDirectly
from braidlog.net.outbound.transport import WAIT_S
from braidlog.wire.apis import PRODUCE
from braidlog.wire.generated.produce import ProduceResponse
from braidlog.wire.message import Message

# How long a thread reads by itself. An answer that takes longer gains nothing by it, and a thread that waits for the
# socket does not notice what else ends its wait: a close, a delivery that ran out of time.
READ_S: Final = WAIT_S
# While the engine is at work its thread cannot be held; mostly it is soon done.
_HOLD_S: Final = 0.001
# A larger batch is encoded and written by the engine: the program's thread has other things to do.
_MOST_BYTES: Final = 16_384
# How often the engine tells metadata which topics are in use.
WANT_S: Final = 30.0


class SenderCallbacks(Protocol):
    """The sender, as far as it is needed here."""

    def answered(self, sent: InFlightRequest, response: Any, problem: ClientError | None) -> None:
        """On the engine's thread."""
        ...

    def not_sent(self, batches: list[ProducerBatch], problem: ClientError | ProtocolError) -> None:
        """On the engine's thread: they never left."""
        ...

    def wake_engine(self) -> None: ...

    def has_problems(self) -> bool:
        """Whether something failed that is not known to work again."""
        ...

    def recovered(self, batches: list[ProducerBatch]) -> None:
        """On the engine's thread: they were written."""
        ...


class ProduceConnection(Protocol):
    """A connection, as far as a request needs it."""

    def version_for(self, api_key: int, at_most: int | None = None) -> int: ...

    def post_with(
        self,
        api_key: int,
        version: int,
        request: Message,
        timeout_s: float,
        on_answer: OnAnswer,
        take_directly: TakeDirectly | None = None,
        *,
        directly: bool = False,
    ) -> None: ...


class ReadyConnections(Protocol):
    def ready(self, node_id: int) -> PipelinedConnection | None: ...


class DirectPath:
    def __init__(
        self,
        busy: LockType,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        requests: ProduceRequests,
        connections: ReadyConnections,
        sender: SenderCallbacks,
    ) -> None:
        self._busy = busy
        self._loop = loop
        self._accumulator = accumulator
        self._requests = requests
        self._connections = connections
        self._sender = sender
        # Requests under way by broker.
        self.under_way: dict[int, int] = {}
        # Topic -> when metadata last learned that it is in use.
        self.wanted: dict[str, float] = {}
        # Whether the sender's timer is set, which no other thread can do.
        self.has_timer = False
        # Requests that programs' threads sent, and answers that they took.
        self.requests_sent = 0
        self.answers_taken = 0
        # The broker and the connection of the last request that was sent by this path.
        self._node = -1
        self._connection: PipelinedConnection | None = None
        # When the last answer was read by this path. One after the other: the loop need not look at the socket between.
        self._read_at = 0.0
        # The engine looks now and then whether that is still so.
        self._is_watched = False

    # Sending

    def send(self) -> bool:
        """From any thread: whether what is ready was sent; if not, the engine has to be called."""
        # The engine's own thread has it.
        if not self._busy.acquire(False):
            return False
        try:
            return self._send_one()
        finally:
            self._busy.release()

    def _send_one(self) -> bool:
        """Send one small batch if that is all there is to do.

        Nothing here may wait, call the program, or need the running loop.
        """
        accumulator = self._accumulator
        active = accumulator.active
        if len(active) != 1 or not self.has_timer or self._requests.acks == 0:
            return False
        if accumulator.in_flight_requests > 0 or accumulator.pending_sends.count > 0:
            return False
        queue = active[0]
        if len(queue.batches) == 0:
            return False
        first = queue.batches[0]
        now = time.monotonic()
        if first.reserved > _MOST_BYTES or first.transactional or now - self.wanted.get(first.topic, -WANT_S) >= WANT_S:
            return False
        node = queue.leader
        connection = self._connection
        if connection is None or node != self._node or not connection.is_open:
            connection = self._connections.ready(node)
        if connection is None or not connection.may_post_directly(self._requests.timeout_s):
            return False
        accumulator.wakeup_received()
        batches = accumulator.drain(now, {node: 1}).requests.get(node)
        if batches is None:
            return False
        try:
            if first.callbacks is not None or asyncio._get_running_loop() is not None:
                # No thread is going to wait for it in `result`: the engine has to read the response.
                connection.let_loop_read()
            self.post(node, connection, batches, True)
        except BaseException as problem:
            self._give_up(node, batches, problem)
            return False
        self.requests_sent += 1
        before = self._connection
        if before is not None and before is not connection:
            # The engine watches one only: of the other it would never take the reading back.
            before.let_loop_read()
        self._node = node
        self._connection = connection
        # Another thread may have added to another partition meanwhile, without waking the engine, since this one looks.
        if len(accumulator.active) > 0:
            self._sender.wake_engine()
        return True

    def _give_up(self, node: int, batches: list[ProducerBatch], problem: BaseException) -> None:
        if isinstance(problem, (ClientError, ProtocolError)):
            self._on_engine(partial(self._sender.not_sent, batches, problem))
            return
        # Ctrl-C, or a bug: the batches must go all the same.
        lost = NoConnection(f"the request to broker {node} was interrupted ({problem!r})")
        self._on_engine(partial(self._sender.not_sent, batches, lost))
        raise problem

    def post(self, node: int, connection: ProduceConnection, batches: list[ProducerBatch], directly: bool) -> None:
        """Encode and write; the engine itself also sends what is answered by this."""
        accumulator = self._accumulator
        request = self._requests.make(batches, accumulator)
        version = connection.version_for(PRODUCE, self._requests.at_most(request))
        sent = InFlightRequest(node, request, version)
        answered, take = partial(self._sender.answered, sent), partial(self._take, sent)
        timeout_s = self._requests.timeout_s
        if isinstance(connection, PipelinedConnection):
            # The same call; compiled, and the type being known, it costs a fraction.
            connection.post_with(PRODUCE, version, request, timeout_s, answered, take, directly=directly)
        else:
            connection.post_with(PRODUCE, version, request, timeout_s, answered, take, directly=directly)
        self.under_way[node] = self.under_way.get(node, 0) + 1
        accumulator.in_flight_requests += 1

    def over(self, sent: InFlightRequest) -> None:
        """It was answered, or never will be."""
        self.under_way[sent.node] -= 1
        self._accumulator.in_flight_requests -= 1
        release(sent.request.batches)

    # Answers

    def _take(self, sent: InFlightRequest, response: ProduceResponse) -> bool:
        """On a program's thread that holds the engine's: whether all is well, and nothing else follows from it."""
        found = responses_by_batch(response, sent)
        for _, each in found:
            if each is None or each.error_code != NONE:
                return False
        self.over(sent)
        accumulator = self._accumulator
        to_notify: list[Waiter] = []
        for batch, each in found:
            assert each is not None
            waiters = accumulator.acknowledge(batch, each.base_offset, each.log_append_time_ms)
            if waiters is not None:
                to_notify.extend(waiters)
        self.answers_taken += 1
        if self._sender.has_problems():
            self._on_engine(partial(self._sender.recovered, sent.request.batches))
        self._notify(to_notify)
        if len(accumulator.active) > 0 or accumulator.pending_sends.count > 0:
            self._sender.wake_engine()
        return True

    def _notify(self, waiters: list[Waiter]) -> None:
        """Threads that sleep are woken from here; programs are called on the engine's thread, and in order."""
        for each in waiters:
            if not isinstance(each, CompletionLatch):
                self._on_engine(partial(notify_waiters, waiters))
                return
        for each in waiters:
            each.settle()

    def read_until_over(self, awaited: ProducerBatch | CompletionLatch, timeout_s: float | None) -> None:
        """Read answers in the engine's place until what is awaited is over, if there are any to come; for READ_S."""
        connection = self._connection
        if connection is None:
            return
        busy = self._busy
        if not busy.acquire(True, _HOLD_S):
            self.let_engine_read()
            return
        try:
            if _is_over(awaited):
                return
            if not self._is_last():
                # It is not read here, and no other thread may be about to.
                connection.let_loop_read()
                return
            if not connection.take_reading():
                return
        finally:
            busy.release()
        left_s = READ_S if timeout_s is None else min(timeout_s, READ_S)
        deadline = time.monotonic() + left_s
        has_left = False
        try:
            while not has_left:
                connection.wait_readable(left_s)
                if not busy.acquire(True, READ_S):
                    return
                try:
                    now = time.monotonic()
                    has_left = self._read(connection, awaited, now, deadline)
                finally:
                    busy.release()
                left_s = max(deadline - now, 0.0)
        finally:
            if not has_left:
                # Interrupted, or the engine is long at something: it takes the reading back when it can.
                self._on_engine(partial(connection.leave_reading, False))

    def _read(
        self, connection: PipelinedConnection, awaited: ProducerBatch | CompletionLatch, now: float, deadline: float
    ) -> bool:
        """Whether there is no more to read here."""
        goes_on = connection.read_directly()
        if goes_on and not _is_over(awaited) and self._is_last() and now < deadline:
            return False
        connection.leave_reading(goes_on and connection is self._connection and self._is_habit(now))
        return True

    def _is_last(self) -> bool:
        """Whether one request is all there is: else a thread would read here, and miss what comes elsewhere."""
        accumulator = self._accumulator
        return (
            accumulator.in_flight_requests == 1
            and len(accumulator.active) == 0
            and accumulator.pending_sends.count == 0
        )

    def _is_habit(self, now: float) -> bool:
        """Whether the program reads one answer after the other by this path, so that it is likely to read the next."""
        often = now - self._read_at < READ_S
        self._read_at = now
        if often and not self._is_watched:
            self._is_watched = True
            self._on_engine(self._watch)
        return often

    def _watch(self) -> None:
        """On the engine's thread: take back the reading of a program that stopped reading."""
        if time.monotonic() - self._read_at < READ_S:
            self._loop.call_later(READ_S, self._watch)
            return
        self._is_watched = False
        if self._connection is not None:
            self._connection.let_loop_read()

    def let_engine_read(self) -> None:
        """A caller waits for a response and will not read it."""
        connection = self._connection
        if connection is not None and self._is_watched:
            self._on_engine(connection.let_loop_read)

    def _on_engine(self, call: Callable[[], object]) -> None:
        # A loop that ended refuses; there is nothing to be read any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)


def _is_over(awaited: ProducerBatch | CompletionLatch) -> bool:
    return awaited.is_released() if isinstance(awaited, CompletionLatch) else awaited.all_done()


def release(batches: list[ProducerBatch]) -> None:
    """No request has them any more."""
    for batch in batches:
        if batch.queue is not None:
            batch.queue.under_way -= 1
