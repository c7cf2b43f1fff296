"""Handles what a fetch response says of one partition: keeps its records, or does what its error asks for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from braidlog.client.broker_errors import broker_error
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.fetch.fetch_requests import FetchedRange, FetchErrorKind, completed_fetch, error_kind
from braidlog.client.consumer.partition_state import UNKNOWN, PartitionState
from braidlog.client.malloc_tuning import keep_large_buffers
from braidlog.core.protocol_errors import NONE
from braidlog.wire.generated.fetch import PartitionData

log = logging.getLogger("braidlog.client")

# From here on what an answer takes is worth keeping for the next one.
_LARGE: Final = 256 * 1024


class PartitionFetch(NamedTuple):
    """What a request asked of a partition, and in which state that was."""

    state: PartitionState
    version: int
    offset: int


class FetchResponseHandler:
    """Used on the engine's thread."""

    def __init__(
        self, context: ConsumerContext, fetch_buffer: FetchBuffer, reset_or_fail: Callable[[PartitionState, str], None]
    ) -> None:
        self._subscription = context.subscription
        self._metadata = context.metadata
        self._problems = context.nodes.problems
        self._clock = context.clock
        self._fetch_buffer = fetch_buffer
        self._reset_or_fail = reset_or_fail
        self._check_crcs = context.settings.flag("check.crcs")
        self._backoff_s = context.settings.seconds("retry.backoff.ms")
        self._longest_backoff_s = context.settings.seconds("retry.backoff.max.ms")
        self._replica_s = context.settings.seconds("metadata.max.age.ms")
        self._served = 0

    def take(self, wanted: PartitionFetch, node: int, data: PartitionData) -> bool:
        """Keep what came; True when the program's thread has something to look at."""
        state = wanted.state
        with self._subscription.lock:
            if not state.is_current or state.version != wanted.version:
                return False
            if data.error_code != NONE:
                return self._handle_error(wanted, node, data)
            state.pause_s = 0.0
            if not self._problems.is_empty:
                self._problems.recovered(str(state.topic_partition))
            state.high_watermark = data.high_watermark
            state.last_stable = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
            if data.preferred_read_replica >= 0:
                state.read_replica = data.preferred_read_replica
                state.read_replica_until = self._clock.monotonic() + self._replica_s
                log.debug("%s: reading from replica %d", state.topic_partition, state.read_replica)
            fetched = completed_fetch(state, wanted.offset, data, check_crcs=self._check_crcs)
            return fetched is not None and self._keep(wanted, fetched)

    def _keep(self, wanted: PartitionFetch, fetched: FetchedRange) -> bool:
        state = wanted.state
        kept, next_offset = fetched
        if next_offset == wanted.offset:
            self._subscription.fail(state, kept.unreadable())
            return True
        if kept.size >= _LARGE:
            keep_large_buffers()
        state.fetch_from = next_offset
        state.fetched += 1
        self._served += 1
        state.served = self._served
        self._fetch_buffer.arrived += kept.size
        self._fetch_buffer.incoming.append(kept)
        return True

    def _handle_error(self, wanted: PartitionFetch, node: int, data: PartitionData) -> bool:
        state = wanted.state
        code = data.error_code
        kind = error_kind(code)
        if kind is FetchErrorKind.OUT_OF_RANGE:
            return self._out_of_range(wanted, node)
        if kind is FetchErrorKind.STALE_METADATA:
            state.read_replica = UNKNOWN
            leader = data.current_leader
            if leader is not None and leader.leader_id >= 0:
                self._metadata.take_leader(state.topic, state.partition, leader.leader_id, leader.leader_epoch)
            self._metadata.request_update()
        elif kind is FetchErrorKind.FATAL:
            self._subscription.fail(state, broker_error(code, str(state.topic_partition)))
            return True
        where = str(state.topic_partition)
        self._problems.failed(where, broker_error(code, where), part_of=f"topic {state.topic}")
        state.back_off(self._clock.monotonic(), self._backoff_s, self._longest_backoff_s)
        return False

    def _out_of_range(self, wanted: PartitionFetch, node: int) -> bool:
        state = wanted.state
        if state.read_replica == node:
            # A follower that is behind; the leader knows.
            state.read_replica = UNKNOWN
            return False
        if wanted.offset != state.position:
            # Fetched ahead: the program has records before it to read, and asks from there when they are used up.
            state.retry_at = self._clock.monotonic() + self._backoff_s
            return False
        self._reset_or_fail(state, f"the log does not have offset {wanted.offset}")
        return True
