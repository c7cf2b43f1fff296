"""Carries batches to the brokers that lead their partitions, several requests at a time, until each is done.

Runs on the engine's thread. A *turn* looks at everything: what ran out of time, which sends wait for memory, what is
ready. It follows a wakeup from a program's thread, a response, new metadata, or the time that the turn before it set.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final, Protocol

from braidlog.client.broker_errors import broker_error
from braidlog.client.cluster_view import ClusterView, TopicView
from braidlog.client.errors import ClientError, NoConnection, ProducerFailedError
from braidlog.client.metadata import Metadata
from braidlog.client.network.engine import Engine, in_event_loop
from braidlog.client.network.nodes import Nodes
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_batch import NEVER, ProducerBatch, notify_waiters
from braidlog.client.producer.accumulator.record_accumulator import Drained, RecordAccumulator
from braidlog.client.producer.direct_path import WANT_S, DirectPath, release
from braidlog.client.producer.guarantees import Guarantees
from braidlog.client.producer.produce_requests import InFlightRequest, ProduceRequests, responses_by_batch
from braidlog.client.producer.produce_response_handler import IncompleteBatches, ProduceResponseHandler
from braidlog.client.requests.init_producer_id import INIT_PRODUCER_ID, init_producer_id_request
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.apis import PRODUCE
from braidlog.wire.generated.init_producer_id import InitProducerIdResponse

log = logging.getLogger("braidlog.client")

# Unanswered requests (acks=0) may pile up in the socket's queue to so many bytes.
_MOST_UNSENT: Final = 4 * 1024 * 1024
_UNSENT_PAUSE_S: Final = 0.001
_ID_REQUEST: Final = "the request for a producer id"


class SenderTransactions(Protocol):
    """What the sender needs of transactions."""

    @property
    def produce_at_most(self) -> int | None: ...

    def on_batch_sent(self, batch: ProducerBatch) -> None: ...


class Sender:
    def __init__(
        self,
        accumulator: RecordAccumulator,
        batch_encoder: BatchEncoder,
        guarantees: Guarantees,
        engine: Engine,
        nodes: Nodes,
        metadata: Metadata,
        response_handler: ProduceResponseHandler,
        incomplete_batches: IncompleteBatches,
        *,
        request_timeout_s: float,
        backoff_s: float,
    ) -> None:
        self._accumulator = accumulator
        self._guarantees = guarantees
        self._engine = engine
        self._loop = engine.loop
        self._nodes = nodes
        self._metadata = metadata
        self._response_handler = response_handler
        self._incomplete_batches = incomplete_batches
        self._backoff_s = backoff_s
        self._ask_again_at = 0.0
        self._requests = ProduceRequests(batch_encoder, guarantees.transactional_id, guarantees.acks, request_timeout_s)
        self.direct = DirectPath(engine.busy, engine.loop, accumulator, self._requests, nodes, self)
        self.transactions: SenderTransactions | None = None
        self._requests_sent = 0
        self._connecting: set[int] = set()
        self._asked: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._turn_due = False
        self._is_requesting_id = False
        self._closed = False
        metadata.listeners.append(self._on_view)

    # Turns

    def wake(self) -> None:
        """From any thread, which may do the work itself."""
        if not self.direct.send():
            self.wake_engine()

    def wake_engine(self) -> None:
        # A loop that ended refuses; what was left has failed by then.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._turn)

    def turn_soon(self) -> None:
        """On the engine's thread: one turn for all that happens in this round of the loop."""
        if not self._turn_due and not self._closed:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        accumulator = self._accumulator
        accumulator.wakeup_received()
        if self._closed:
            return
        try:
            self._set_timer(self._run_once(self._accumulator.clock.monotonic()))
        except Exception:
            # A bug of ours must not end the sending for good: batches still run out of time.
            log.exception("a turn of the producer's sender failed")
            self._set_timer(accumulator.clock.monotonic() + 1.0)
        finally:
            accumulator.release_throttled()

    def _run_once(self, now: float) -> float:
        """Do what can be done; when to look again."""
        accumulator = self._accumulator
        if accumulator.next_expiry() <= now:
            expired, to_notify = accumulator.expire_batches(now)
            for batch in expired:
                assert batch.error is not None
                self._response_handler.report_failed([batch], batch.error)
            notify_waiters(to_notify)
        look_at = self._admit(now) if accumulator.pending_sends.count > 0 else NEVER
        producer_id_state = accumulator.producer_id_state
        if producer_id_state.wants_id and accumulator.active:
            self._request_producer_id()
        capacity = self._capacity()
        while True:
            drained = accumulator.drain(now, capacity)
            for node, batches in drained.requests.items():
                capacity[node] -= 1
                self._send(node, batches)
            if not drained.requests:
                break
        look_at = min(look_at, self._request_missing(drained, now))
        if self._guarantees.acks == 0 and accumulator.active:
            look_at = min(look_at, now + _UNSENT_PAUSE_S)
        return min(look_at, drained.look_at, accumulator.next_expiry())

    def _set_timer(self, when: float) -> None:
        delay = max(when - self._accumulator.clock.monotonic(), 0.0)
        due = self._loop.time() + delay
        if self._timer is not None:
            # One that is set already may come earlier, which costs less than to set another each turn.
            if self._timer.when() <= due:
                return
            self._timer.cancel()
            self._timer = None
        if when < NEVER:
            self._timer = self._loop.call_at(due, self._on_timer)
        self.direct.has_timer = self._timer is not None

    def _on_timer(self) -> None:
        self._timer = None
        self.direct.has_timer = False
        self._turn()

    def _capacity(self) -> dict[int, int]:
        """Requests that each connected broker may still get."""
        capacity: dict[int, int] = {}
        most = self._guarantees.max_in_flight
        for node in self._metadata.view.brokers:
            connection = self._nodes.ready(node)
            if connection is None:
                continue
            if self._guarantees.acks == 0:
                capacity[node] = most if connection.unsent < _MOST_UNSENT else 0
            else:
                capacity[node] = max(most - self.direct.under_way.get(node, 0), 0)
        return capacity

    # What is missing

    def _admit(self, now: float) -> float:
        admitted = self._accumulator.pending_sends.admit(now)
        for topic in admitted.unknown_topics:
            self.request_topic(topic)
        notify_waiters(admitted.to_notify)
        return admitted.look_at

    def request_topic(self, topic: str) -> None:
        if topic not in self._asked:
            self._asked.add(topic)
            self._engine.spawn(f"metadata of {topic}", self._find(topic))

    async def _find(self, topic: str) -> None:
        pending = self._accumulator.pending_sends
        partition = pending.first_partition(topic)
        try:
            await self.wait_for_topic(topic, self._accumulator.limits.max_block_s, partition)
        except (ClientError, ProtocolError) as problem:
            # Of a topic that is known, only the partition is missing.
            is_known = self._metadata.view.topic(topic) is not None
            notify_waiters(pending.fail(topic, problem, partition if is_known else -1))
        finally:
            self._asked.discard(topic)
        self.turn_soon()

    async def wait_for_topic(self, topic: str, timeout_s: float, partition: int = -1) -> None:
        """Return once metadata has the topic, and the partition if one is named."""
        deadline = self._loop.time() + timeout_s
        view = await self._metadata.topic(topic, timeout_s)
        while partition >= len(view.partitions):
            # Partitions can be added; ask until then.
            await asyncio.sleep(min(0.1, max(deadline - self._loop.time(), 0.0)))
            if self._loop.time() >= deadline:
                raise unknown_partition(topic, partition, len(view.partitions), timeout_s)
            try:
                await self._metadata.refreshed()
            except NoConnection:
                # Until the deadline it may come back, as while a topic is waited for.
                continue
            view = self._metadata.view.topic(topic) or view
        self._on_view(self._metadata.view, topic)

    def _request_missing(self, drained: Drained, now: float) -> float:
        """Connect to brokers and ask for leaders that are missing; when to ask again."""
        for node in drained.unconnected:
            if node not in self._connecting:
                self._connecting.add(node)
                self._engine.spawn(f"connect to {node}", self._connect(node))
        if not drained.leaderless:
            return NEVER
        if now >= self._ask_again_at:
            self._ask_again_at = now + self._backoff_s
            self._metadata.want(*drained.leaderless)
            self._metadata.request_update()
        return self._ask_again_at

    async def _connect(self, node: int) -> None:
        began = self._nodes.problems.now()
        try:
            await self._nodes.connection(node)
            self._nodes.problems.recovered(f"broker {node}")
        except (ClientError, UserError) as problem:
            if getattr(problem, "retriable", False):
                self._response_handler.note_unreachable(node, problem, began)
                self._metadata.request_update()
                # Batches whose time is up must not wait for a connection.
                await asyncio.sleep(0.01)
            else:
                # The broker will not have us at all: waiting for it would only hide why.
                self._incomplete_batches.fail_all(problem)
        finally:
            self._connecting.discard(node)
        self.turn_soon()

    def _on_view(self, view: ClusterView, also: str | None = None) -> None:
        accumulator = self._accumulator
        names = list(accumulator.topics)
        if also is not None and also not in accumulator.topics:
            names.append(also)
        for name in names:
            topic = view.topic(name)
            if topic is None:
                if name in view.topics:
                    accumulator.mark_leaderless(name)
                continue
            leaders = [each.leader for each in topic.partitions]
            accumulator.update_topic(name, topic, topic.topic_id, leaders)
        self.turn_soon()

    # A producer id, without transactions: these get theirs from their coordinator

    def _request_producer_id(self) -> None:
        if not self._is_requesting_id:
            self._is_requesting_id = True
            self._engine.spawn("get a producer id", self._get_producer_id())

    async def _get_producer_id(self) -> None:
        try:
            while True:
                if await self._init_producer_id():
                    return
                await asyncio.sleep(self._backoff_s)
        finally:
            self._is_requesting_id = False

    async def _init_producer_id(self) -> bool:
        """One attempt; whether it was the last, successful or not."""
        problems = self._nodes.problems
        try:
            connection = await self._nodes.any()
            response = await connection.call(
                INIT_PRODUCER_ID,
                init_producer_id_request(transactional_id=None),
                InitProducerIdResponse,
                timeout_s=self._nodes.request_timeout_s,
            )
            if response.error_code != NONE:
                raise broker_error(response.error_code, _ID_REQUEST)
        except (ClientError, ProtocolError) as problem:
            if problem.retriable:
                problems.failed(_ID_REQUEST, problem)
                return False
            reason = f"no producer id, which idempotence needs ({problem}); enable_idempotence=False does without"
            self._incomplete_batches.end(ProducerFailedError(reason))
            return True
        problems.recovered(_ID_REQUEST)
        self._accumulator.producer_id_state.set_producer_id_and_epoch(response.producer_id, response.producer_epoch)
        self.wake()
        return True

    # Requests

    def _send(self, node: int, batches: list[ProducerBatch]) -> None:
        connection = self._nodes.ready(node)
        try:
            if connection is None:
                raise NoConnection(f"the connection to broker {node} ended before the request was written")
            self._note_use(batches, self._accumulator.clock.monotonic())
            self._post(node, connection, batches)
        except (ClientError, ProtocolError) as problem:
            self.not_sent(batches, problem)

    def not_sent(self, batches: list[ProducerBatch], problem: ClientError | ProtocolError) -> None:
        release(batches)
        self._response_handler.unanswered(batches, problem)
        self.turn_soon()

    def _post(self, node: int, connection: PipelinedConnection, batches: list[ProducerBatch]) -> None:
        if self.transactions is not None:
            self._requests.newest = self.transactions.produce_at_most
            for batch in batches:
                self.transactions.on_batch_sent(batch)
        if self._guarantees.acks == 0:
            request = self._requests.make(batches, self._accumulator)
            version = connection.version_for(PRODUCE, self._requests.at_most(request))
            connection.post_only(PRODUCE, version, request)
            release(batches)
            for batch in batches:
                self._response_handler.written(batch, -1, -1)
        else:
            self.direct.post(node, connection, batches, False)
        self._requests_sent += 1

    def answered(self, sent: InFlightRequest, response: Any, problem: ClientError | None) -> None:
        self.direct.over(sent)
        if problem is None:
            for batch, each in responses_by_batch(response, sent):
                self._response_handler.answered(batch, each)
        else:
            self._response_handler.unanswered(sent.request.batches, problem)
            self._metadata.request_update()
        if self._accumulator.active or self._accumulator.pending_sends.count > 0:
            self.turn_soon()

    def has_problems(self) -> bool:
        return not self._metadata.problems.is_empty

    def recovered(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            self._response_handler.recovered(batch)

    @property
    def requests_sent(self) -> int:
        return self._requests_sent + self.direct.requests_sent

    def _note_use(self, batches: list[ProducerBatch], now: float) -> None:
        """Topics that are written to must not fall out of the metadata."""
        for batch in batches:
            if now - self.direct.wanted.get(batch.topic, -WANT_S) >= WANT_S:
                self.direct.wanted[batch.topic] = now
                self._metadata.want(batch.topic)

    def close(self) -> None:
        self._closed = True
        self.direct.has_timer = False
        if self._timer is not None:
            self._timer.cancel()


class EngineMetadataWait:
    """Lets a program's thread wait for metadata, on behalf of the send path.

    It is connected after the accumulator was made, which wakes the sender through it. It refers to the engine's parts
    only, never to the Producer, so that a forgotten Producer can be collected.
    """

    def __init__(self, max_block_s: float) -> None:
        self._max_block_s = max_block_s
        self._engine: Engine | None = None
        self._sender: Sender | None = None
        self._metadata: Metadata | None = None

    def connect(self, engine: Engine, sender: Sender, metadata: Metadata) -> None:
        self._engine = engine
        self._sender = sender
        self._metadata = metadata

    def in_event_loop(self) -> bool:
        return in_event_loop()

    def wake(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        if self._engine is None or self._sender is None:
            raise ClientError("the producer is not ready yet")
        self._engine.run(self._sender.wait_for_topic(topic, timeout_s, partition))

    def find_topic(self, topic: str) -> TopicView | None:
        """The topic's metadata, waited for unless this thread runs an event loop."""
        if self._metadata is None:
            return None
        found = self._metadata.view.topic(topic)
        if found is None and not in_event_loop():
            self.await_topic(topic, -1, self._max_block_s)
            found = self._metadata.view.topic(topic)
        return found


def unknown_partition(topic: str, partition: int, count: int, timeout_s: float) -> ClientError:
    return ClientError(
        f"topic {topic} has {count} partitions, counted from 0, and no partition {partition} appeared within "
        f"{timeout_s:g} s; name one that exists, or add partitions"
    )
