"""Finds where to read: committed offsets for new partitions, resets, and checks after a change of leader.

All of it runs on the engine's thread, in small tasks. What they find is applied under the subscription's lock, and
only if the partition is still where it was when they asked (`PartitionState.version`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.offsets.auto_offset_reset import LATEST, AutoOffsetResetStrategy
from braidlog.client.consumer.offsets.list_offsets import (
    STALE_LEADER_CODES,
    FoundOffset,
    OffsetLookup,
    idle_connection,
    leader_of,
)
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.offsets.offset_for_leader_epoch import (
    EpochEnd,
    EpochEndQuery,
    can_validate,
    check_truncation,
    request_epoch_ends,
    truncation_error,
)
from braidlog.client.consumer.partition_state import (
    AWAITING_RESET,
    AWAITING_VALIDATION,
    FETCHING,
    INITIALISING,
    PartitionState,
)
from braidlog.client.errors import AuthenticationFailed, ClientError, NoOffsetError
from braidlog.core.ids import has_topic_id
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.client")

FetchCommitted = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata | None]]]


class Positions:
    def __init__(
        self,
        context: ConsumerContext,
        tasks: Tasks,
        reset_strategy: AutoOffsetResetStrategy,
        lookup: OffsetLookup,
        changed: Callable[[], None],
        fetch_committed: FetchCommitted | None = None,
    ) -> None:
        self._context = context
        self._subscription = context.subscription
        self._tasks = tasks
        self._reset_strategy = reset_strategy
        self._lookup = lookup
        # Called when a partition can be fetched that could not be before, or has failed.
        self._changed = changed
        self._fetch_committed = fetch_committed
        self._backoff_s = context.settings.seconds("retry.backoff.ms")
        self._longest_backoff_s = context.settings.seconds("retry.backoff.max.ms")
        self._timeout_s = context.settings.seconds("request.timeout.ms")
        # Partitions that a task is asking about.
        self._busy: set[PartitionState] = set()

    # What is to be done

    def advance(self, states: Iterable[PartitionState], now: float, advance_at: Callable[[float, float], None]) -> None:
        """Start what each partition waits for, unless that is under way or its time has not come."""
        waiting: dict[int, list[PartitionState]] = {INITIALISING: [], AWAITING_RESET: [], AWAITING_VALIDATION: []}
        for state in states:
            if state.phase != FETCHING and state.failure is None and state not in self._busy:
                if state.retry_at > now:
                    advance_at(state.retry_at, now)
                else:
                    waiting[state.phase].append(state)
        if waiting[INITIALISING]:
            self._initialise(waiting[INITIALISING])
        if waiting[AWAITING_RESET]:
            self._start("reset offsets", waiting[AWAITING_RESET], self._reset)
        if waiting[AWAITING_VALIDATION]:
            self._start("validate positions", waiting[AWAITING_VALIDATION], self._validate)

    def check_leader(self, state: PartitionState, view: ClusterView) -> None:
        """After metadata changed, or for a position that is new: is it to be checked against another leader?"""
        topic = view.topic(state.topic)
        if topic is None or state.partition >= len(topic.partitions):
            return
        with self._subscription.lock:
            if state.phase not in (FETCHING, AWAITING_VALIDATION):
                return
            if has_topic_id(topic.topic_id):
                if not state.topic_id:
                    state.topic_id = topic.topic_id
                elif state.topic_id != topic.topic_id:
                    self._recreated(state, topic.topic_id)
                    return
            epoch = topic.partitions[state.partition].leader_epoch
            if epoch == state.leader_epoch:
                return
            if state.position_epoch < 0 or epoch < 0:
                # Nothing to compare with.
                state.leader_epoch = epoch
            elif state.phase == FETCHING:
                state.move(AWAITING_VALIDATION)
                state.retry_at = 0.0

    def _recreated(self, state: PartitionState, topic_id: bytes) -> None:
        """Another topic of the same name: no offset of the old one means anything in it."""
        log.warning(
            "topic %s was deleted and made again: position %d of partition %d belonged to the old one",
            state.topic, state.position, state.partition,
        )  # fmt: skip
        state.topic_id = topic_id
        state.position_epoch = -1
        state.leader_epoch = -1
        self.reset_or_fail(state, f"position {state.position} is of a topic {state.topic} that was deleted since")

    def reset_or_fail(self, state: PartitionState, problem: str) -> None:
        """There is no offset to go on with: do what auto.offset.reset says."""
        with self._subscription.lock:
            target = self._reset_strategy.target(self._context.clock)
            if target is not None:
                log.info("%s: %s; resetting to %s", state.topic_partition, problem, self._reset_strategy.text)
                state.request_reset(target)
                return
            self._subscription.fail(
                state,
                NoOffsetError(
                    f"{state.topic_partition}: {problem}, and auto.offset.reset is none; seek to where to read",
                    state.topic_partition,
                    int(state.position),
                ),
            )
        self._changed()

    # New partitions

    def _initialise(self, states: list[PartitionState]) -> None:
        if self._fetch_committed is not None:
            self._start("fetch committed offsets", states, self._find_committed)
            return
        for state in states:
            with self._subscription.lock:
                # The program may have sought meanwhile, right after it assigned the partition.
                if state.phase == INITIALISING:
                    self.reset_or_fail(state, "there is no group and so no committed offset")
        self._changed()

    async def _find_committed(self, states: list[PartitionState], versions: list[int]) -> None:
        assert self._fetch_committed is not None
        committed = await self._fetch_committed([state.topic_partition for state in states])
        for state, version in zip(states, versions, strict=True):
            found = committed.get(state.topic_partition)
            with self._subscription.lock:
                if state.version != version or state.phase != INITIALISING:
                    continue
                if found is None:
                    self.reset_or_fail(state, f"group {self._context.group_id} has no committed offset")
                else:
                    log.debug("%s: starting at the committed offset %d", state.topic_partition, found.offset)
                    state.seek(found.offset, found.leader_epoch)

    # Resets

    async def _reset(self, states: list[PartitionState], versions: list[int]) -> None:
        targets = {state.topic_partition: state.reset_to for state in states}
        found = await self._lookup.ask(targets)
        # A time after the last record is the end.
        later = [each for each, answer in found.items() if isinstance(answer, FoundOffset) and answer.offset < 0]
        if later:
            found.update(await self._lookup.ask(dict.fromkeys(later, LATEST)))
        for state, version in zip(states, versions, strict=True):
            answer = found[state.topic_partition]
            with self._subscription.lock:
                if state.version != version or state.phase != AWAITING_RESET:
                    continue
                if isinstance(answer, FoundOffset):
                    state.seek(answer.offset, answer.leader_epoch)
                    # The leader that was asked is the one to read from: nothing to check.
                    leader = leader_of(self._context.metadata.view, state.topic_partition)
                    state.leader_epoch = -1 if isinstance(leader, ProtocolError) else leader[1]
                else:
                    self._retry_or_fail(state, answer)

    # Checks

    async def _validate(self, states: list[PartitionState], versions: list[int]) -> None:
        by_leader: dict[int, dict[TopicPartition, tuple[PartitionState, int, int]]] = {}
        for state, version in zip(states, versions, strict=True):
            leader = leader_of(self._context.metadata.view, state.topic_partition)
            if isinstance(leader, ProtocolError):
                self._retry_or_fail(state, leader)
            else:
                by_leader.setdefault(leader[0], {})[state.topic_partition] = (state, version, leader[1])
        for node, asked in by_leader.items():
            await self._validate_at(node, asked)

    async def _validate_at(self, node: int, asked: dict[TopicPartition, tuple[PartitionState, int, int]]) -> None:
        answers: dict[TopicPartition, EpochEnd | ProtocolError | ClientError]
        try:
            connection = await idle_connection(self._context.nodes, node)
            if not can_validate(connection):
                for state, version, epoch in asked.values():
                    self._validated(state, version, epoch)
                return
            questions = {
                each: EpochEndQuery(epoch, int(state.position_epoch)) for each, (state, _, epoch) in asked.items()
            }
            answers = await request_epoch_ends(connection, questions, self._timeout_s)
        except (ClientError, ProtocolError) as problem:
            answers = dict.fromkeys(asked, problem)
        for each, (state, version, epoch) in asked.items():
            answer = answers[each]
            if isinstance(answer, EpochEnd):
                self._check_truncation(state, version, epoch, answer)
            else:
                with self._subscription.lock:
                    self._retry_or_fail(state, answer)

    def _check_truncation(self, state: PartitionState, version: int, epoch: int, answer: EpochEnd) -> None:
        with self._subscription.lock:
            if state.version != version or state.phase != AWAITING_VALIDATION:
                return
            result = check_truncation(int(state.position), answer)
            if not result.is_truncated:
                self._validated(state, version, epoch)
                return
            problem = truncation_error(state, result)
            if self._reset_strategy.is_none:
                # A poll raises it, and the program seeks; until then the partition stays here.
                self._subscription.fail(state, problem)
            elif result.resume_at >= 0:
                log.warning("%s; going on there", problem)
                state.seek(result.resume_at, result.epoch)
                state.leader_epoch = epoch
            else:
                self.reset_or_fail(state, str(problem))

    def _validated(self, state: PartitionState, version: int, epoch: int) -> None:
        with self._subscription.lock:
            if state.version == version and state.phase == AWAITING_VALIDATION:
                state.move(FETCHING)
                state.leader_epoch = epoch

    # Tasks

    def _start(
        self,
        name: str,
        states: list[PartitionState],
        work: Callable[[list[PartitionState], list[int]], Awaitable[None]],
    ) -> None:
        self._busy.update(states)
        self._tasks.spawn(name, self._run(states, work))

    async def _run(
        self,
        states: list[PartitionState],
        work: Callable[[list[PartitionState], list[int]], Awaitable[None]],
    ) -> None:
        try:
            await work(states, [int(state.version) for state in states])
        except (ClientError, ProtocolError) as problem:
            for state in states:
                with self._subscription.lock:
                    self._retry_or_fail(state, problem)
        finally:
            self._busy.difference_update(states)
            self._changed()

    def _retry_or_fail(self, state: PartitionState, problem: ProtocolError | ClientError) -> None:
        """Try again after a pause, or have a poll raise it."""
        if not problem.retriable or isinstance(problem, AuthenticationFailed):
            if state.failure is None and state.is_current:
                self._subscription.fail(state, problem)
            return
        self._context.nodes.problems.failed(str(state.topic_partition), problem, part_of=f"topic {state.topic}")
        if isinstance(problem, ClientError) or problem.code in STALE_LEADER_CODES:
            self._context.metadata.request_update()
        state.back_off(self._context.clock.monotonic(), self._backoff_s, self._longest_backoff_s)
