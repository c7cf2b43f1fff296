"""Fetches ahead of the program, one request at a time to each broker.

A broker is asked when every partition that it leads for us has room, so that one without new records cannot keep the
others waiting; at most two fetches of a partition, and `fetch.max.bytes` in all, wait for the program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from braidlog.client.cluster_view import NO_LEADER, ClusterView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.fetch.fetch_requests import FetchRequests
from braidlog.client.consumer.fetch.fetch_responses import FetchResponseHandler, PartitionFetch
from braidlog.client.consumer.fetch.fetch_session_handler import FetchSessionHandler, RequestedPartition
from braidlog.client.consumer.offsets.positions import Positions
from braidlog.client.consumer.partition_state import UNKNOWN, PartitionState
from braidlog.client.errors import AuthenticationFailed, ClientError, RequestTimeout
from braidlog.core.ids import has_topic_id
from braidlog.core.protocol_errors import NONE, ProtocolError, from_code
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.fetch import FetchResponse

log = logging.getLogger("braidlog.client")

MAX_BUFFERED_FETCHES: Final = 2
_CLOSE_S: Final = 0.5
# A fetch that is not answered so long after the broker should have is worth a log line, long before it times out.
_SILENT_S: Final = 5.0


class Fetcher:
    """Used on the engine's thread, except for `schedule`."""

    def __init__(
        self,
        context: ConsumerContext,
        tasks: Tasks,
        fetch_buffer: FetchBuffer,
        positions: Positions,
        responses: FetchResponseHandler,
    ) -> None:
        settings = context.settings
        self._context = context
        self._subscription = context.subscription
        self._tasks = tasks
        self._fetch_buffer = fetch_buffer
        self._positions = positions
        self._responses = responses
        self._sessions: dict[int, FetchSessionHandler] = {}
        # Brokers that a request is under way to.
        self._in_flight: set[int] = set()
        self._is_scheduled = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timeout_s = settings.seconds("request.timeout.ms")
        self._backoff_s = settings.seconds("retry.backoff.ms")
        self._longest_backoff_s = settings.seconds("retry.backoff.max.ms")
        self._requests = FetchRequests(settings)
        self._max_bytes = settings.number("fetch.max.bytes")
        self._partition_bytes = settings.number("max.partition.fetch.bytes")
        self.fetches = 0

    # When to look

    def schedule(self) -> None:
        """From any thread: something changed that fetching depends on."""
        if not self._is_scheduled and not self._closed:
            self._is_scheduled = True
            self._context.engine.soon(self.advance)

    def schedule_if_idle(self) -> None:
        """A fetch was used up: room for another, if a broker waits for that."""
        if len(self._in_flight) < len(self._sessions) or not self._sessions:
            self.schedule()

    def _advance_at(self, when: float, now: float) -> None:
        """Look again then, or sooner if that is planned already."""
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._context.engine.loop.call_later(max(when - now, 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.advance()

    def advance(self) -> None:
        """Start whatever can be started."""
        self._is_scheduled = False
        if self._closed:
            return
        states = self._subscription.states()
        view = self._context.metadata.view
        now = self._context.clock.monotonic()
        for state in states:
            self._positions.check_leader(state, view)
        self._positions.advance(states, now, self._advance_at)
        for node, wanted in self._plan(states, view, now).items():
            self._in_flight.add(node)
            self._tasks.spawn(f"fetch from broker {node}", self._fetch(node, wanted))

    def _plan(
        self, states: list[PartitionState], view: ClusterView, now: float
    ) -> dict[int, dict[TopicPartition, tuple[PartitionFetch, RequestedPartition]]]:
        """By broker that can be asked, what to ask it for."""
        plan: dict[int, dict[TopicPartition, tuple[PartitionFetch, RequestedPartition]]] = {}
        if self._fetch_buffer.arrived - self._fetch_buffer.drained >= self._max_bytes:
            return plan
        full: set[int] = set()
        # Brokers fill an answer in the order asked, and the first must not starve the rest.
        for state in sorted(states, key=_served):
            if not state.is_fetchable():
                continue
            if state.retry_at > now:
                self._advance_at(state.retry_at, now)
                continue
            node = self._node_for(state, view, now)
            if node == NO_LEADER:
                self._context.metadata.request_update()
                state.back_off(now, self._backoff_s, self._longest_backoff_s)
                self._advance_at(state.retry_at, now)
            elif state.fetched - state.drained >= MAX_BUFFERED_FETCHES:
                full.add(node)
            elif node not in self._in_flight:
                topic = view.topics[state.topic]
                asked = RequestedPartition(
                    topic.topic_id, int(state.fetch_from), state.leader_epoch, self._partition_bytes
                )
                wanted = PartitionFetch(state, int(state.version), int(state.fetch_from))
                plan.setdefault(node, {})[state.topic_partition] = (wanted, asked)
        for node in full:
            plan.pop(node, None)
        # Sessions keep what is no longer asked for; a broker with nothing to ask is left alone until there is.
        return plan

    def _node_for(self, state: PartitionState, view: ClusterView, now: float) -> int:
        if state.read_replica != UNKNOWN:
            if now < state.read_replica_until and state.read_replica in view.brokers:
                return state.read_replica
            state.read_replica = UNKNOWN
        found = view.partition(state.topic, state.partition)
        return NO_LEADER if found is None else found.leader

    # One request

    async def _fetch(self, node: int, wanted: dict[TopicPartition, tuple[PartitionFetch, RequestedPartition]]) -> None:
        session = self._sessions.setdefault(node, FetchSessionHandler())
        pause = 0.0
        problems = self._context.nodes.problems
        began = problems.now()
        connected = False
        overdue_s = self._requests.max_wait_ms / 1000 + _SILENT_S
        overdue = self._context.engine.loop.call_later(overdue_s, self._warn_unanswered, node, overdue_s, began)
        try:
            connection = await self._context.nodes.connection(node)
            connected = True
            everything = {each: asked for each, (_, asked) in wanted.items()}
            self.fetches += 1
            response = await self._requests.send(
                connection,
                lambda uses_ids: session.plan(everything, uses_ids=uses_ids),
                self._free_bytes(),
                self._timeout_s,
                by_id=all(has_topic_id(asked.topic_id) for asked in everything.values()),
            )
            if not problems.is_empty:
                problems.recovered(f"broker {node}")
            pause = self._take(node, session, wanted, response)
        except (ClientError, ProtocolError) as problem:
            session.handle_error()
            pause = self._backoff_s
            # A connection that ends while the broker waits for records was good until then.
            was_good = connected and not isinstance(problem, RequestTimeout)
            self._on_failure(node, wanted, problem, None if was_good else began)
        except asyncio.CancelledError:
            session.handle_error()
            raise
        finally:
            overdue.cancel()
            self._in_flight.discard(node)
        if pause:
            now = self._context.clock.monotonic()
            self._advance_at(now + pause, now)
        else:
            self.advance()

    def _warn_unanswered(self, node: int, seconds: float, began: float) -> None:
        said = f"no answer to a fetch for {seconds:g} s; is it overloaded, or stopped?"
        self._context.nodes.problems.failed(f"broker {node}", said, since=began)

    def _on_failure(
        self,
        node: int,
        wanted: Mapping[TopicPartition, tuple[PartitionFetch, RequestedPartition]],
        problem: ClientError | ProtocolError,
        began: float | None,
    ) -> None:
        if isinstance(problem, AuthenticationFailed) or not problem.retriable:
            for asked, _ in wanted.values():
                self._subscription.fail(asked.state, problem)
            self._context.wakeup.notify()
            return
        self._context.nodes.problems.failed(f"broker {node}", problem, since=began)
        for asked, _ in wanted.values():
            asked.state.read_replica = UNKNOWN
        self._context.metadata.request_update()

    def _free_bytes(self) -> int:
        return max(self._max_bytes - int(self._fetch_buffer.arrived - self._fetch_buffer.drained), 1)

    def _take(
        self,
        node: int,
        session: FetchSessionHandler,
        wanted: Mapping[TopicPartition, tuple[PartitionFetch, RequestedPartition]],
        response: FetchResponse,
    ) -> float:
        """Hand over what came; the seconds to wait before this broker is asked again."""
        session.handle_response(response.error_code, response.session_id)
        if response.error_code != NONE:
            log.debug("broker %d refused a fetch: %s", node, from_code(response.error_code).name)
            self._context.metadata.request_update()
            return self._backoff_s if session.session_id else 0.0
        by_id = {asked.topic_id: where.topic for where, (_, asked) in wanted.items()}
        has_data = False
        for topic in response.responses:
            name = topic.topic or by_id.get(topic.topic_id, "")
            for data in topic.partitions:
                each = wanted.get(TopicPartition(name, data.partition_index))
                if each is not None and self._responses.take(each[0], node, data):
                    has_data = True
        if has_data:
            # First the next request, then the program's thread: it holds the interpreter's lock while it works.
            self._context.engine.loop.call_soon(self._context.wakeup.notify)
        return 0.0

    # End

    async def close(self) -> None:
        """End the sessions, as far as brokers answer quickly."""
        self._closed = True
        closing = [self._close_session(node, session) for node, session in self._sessions.items()]
        await asyncio.gather(*closing, return_exceptions=True)

    async def _close_session(self, node: int, session: FetchSessionHandler) -> None:
        plan = session.closing()
        connection: PipelinedConnection | None = self._context.nodes.ready(node)
        # One that is parked there would be waited for; the broker forgets sessions by itself.
        if plan is None or connection is None or connection.in_flight:
            return
        closing = self._requests.send(
            connection, lambda _: plan, self._free_bytes(), self._timeout_s, by_id=plan.uses_ids, max_wait_ms=0
        )
        await asyncio.wait_for(closing, _CLOSE_S)


def _served(state: PartitionState) -> int:
    return int(state.served)
