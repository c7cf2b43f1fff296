"""The runtime of a coordinator: runs operations on shards, makes their records durable, answers when they are.

    submit → operation(shard) → stage one batch → replay it into the shard → … committed → replies, then actions

Appends to one partition are committed in their order, so a reply that carries no records of its own waits for those
pending before it: nobody is told of a state that a crash could take back. When an append fails, what the shard believes
and what its log says differ: everybody who waits is refused, and the shard is rebuilt by replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from braidlog.coordinator.append_errors import to_client_error
from braidlog.coordinator.context import ACTIVE, FAILED, LOADING, CoordinatorContext, DeferredEvent
from braidlog.coordinator.effects import Action, Effects, Moment, Responder
from braidlog.coordinator.loader import UnreadableLogError, load
from braidlog.coordinator.partition_writer import AppendCallback, PartitionWriter
from braidlog.coordinator.partitioning import partition_for
from braidlog.coordinator.responders import FutureResponder
from braidlog.coordinator.responses import Reply, deliver, fail_all, log_bug, run_callback
from braidlog.coordinator.shard import CoordinatorShard, ReplayedRecord
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProtocolError,
)
from braidlog.core.tasks import Tasks
from braidlog.wire.message import Message
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record

log = logging.getLogger("braidlog.coordinator")

S = TypeVar("S", bound=CoordinatorShard)

Operation = Callable[[S, Moment], Effects]


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic. `make_shard(leader_epoch)` gives an empty one."""

    def __init__(
        self,
        topic: str,
        logs: PartitionWriter,
        make_shard: Callable[[int], S],
        partition_count: Callable[[], int],
        clock: Clock,
        tasks: Tasks,
        codec: Callable[[], int] = lambda: 0,
    ) -> None:
        self.topic = topic
        self._logs = logs
        self._make_shard = make_shard
        self._partition_count = partition_count
        self._clock = clock
        self._tasks = tasks
        self._codec = codec
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        self._to_load: deque[CoordinatorContext[S]] = deque()
        self._loader: asyncio.Task[None] | None = None
        # How actions are done; set by whoever knows the kinds of this coordinator.
        self.perform: Callable[[Action], None] | None = None

    # Leadership

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition now: load its shard, at once where there is nothing to load."""
        context = self._contexts.get(partition)
        if context is not None and context.leader_epoch == leader_epoch and context.state != FAILED:
            return
        self.on_resignation(partition)
        context = CoordinatorContext(self.topic, partition, leader_epoch, self._make_shard(leader_epoch))
        self._contexts[partition] = context
        try:
            start, end = self._logs.bounds(partition)
        except ProtocolError as error:
            context.state = FAILED
            log.error("%s cannot be loaded: %s", context.name, error)
            return
        if start == end:
            self._activate(context)
        else:
            self._schedule_load(context)

    def on_resignation(self, partition: int) -> None:
        context = self._contexts.pop(partition, None)
        if context is not None:
            self._unload(context, NotCoordinatorError("another broker coordinates this now; look it up again"))

    def stop(self) -> None:
        """Nobody is left waiting when the broker stops."""
        for partition in list(self._contexts):
            self.on_resignation(partition)

    def partition_of(self, name: str) -> int:
        return partition_for(name, self._partition_count())

    def active_partitions(self) -> list[int]:
        return [partition for partition, context in self._contexts.items() if context.state == ACTIVE]

    def active_shards(self) -> list[S]:
        """For whoever counts what is in them; operations go through `submit`."""
        return [context.shard for context in self._contexts.values() if context.state == ACTIVE]

    def loading_partitions(self) -> list[int]:
        return [partition for partition, context in self._contexts.items() if context.state == LOADING]

    # Operations

    def submit(self, name: str, responder: Responder, operation: Operation[S]) -> None:
        """Run an operation on the shard that `name` belongs to; the responder is answered, or failed, exactly once."""
        self.submit_to(self.partition_of(name), responder, operation)

    def submit_to(self, partition: int, responder: Responder, operation: Operation[S]) -> None:
        context = self._contexts.get(partition)
        if context is None or context.state != ACTIVE:
            responder.fail(_unavailable(context))
            return
        now = self._now()
        try:
            effects = operation(context.shard, now)
        except ProtocolError as error:
            # Nothing durable has changed, but perhaps what is due next.
            self._schedule_timer(context)
            responder.fail(error)
            return
        except Exception as bug:
            self._schedule_timer(context)
            responder.fail(log_bug(context.name, bug))
            return
        self._apply_effects(context, effects, now)

    async def ask(self, name: str, operation: Callable[[S, Responder, Moment], Effects]) -> Message:
        return await self.ask_partition(self.partition_of(name), operation)

    async def ask_partition(self, partition: int, operation: Callable[[S, Responder, Moment], Effects]) -> Message:
        responder = FutureResponder()
        self.submit_to(partition, responder, lambda shard, now: operation(shard, responder, now))
        return await responder.future

    def submit_to_all(self, operation: Operation[S]) -> None:
        """Run something that nobody waits for on every active shard: a topic is gone, or has more partitions."""
        now = self._now()
        for context in list(self._contexts.values()):
            if context.state == ACTIVE:
                self._run(context, operation, now)

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        done: AppendCallback,
    ) -> None:
        """End a transaction in a shard's own partition: its records count, or not, from here on in the log."""
        context = self._contexts.get(partition)
        if context is None or context.state != ACTIVE:
            done(_unavailable(context))
            return
        batch = build_end_txn_marker(
            commit=commits,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.wall_ms(),
            coordinator_epoch=coordinator_epoch,
        )
        pending = DeferredEvent([], [])
        pending.done = done
        try:
            self._stage(context, batch, pending)
        except ProtocolError as error:
            done(error)
            return
        try:
            context.shard.replay_end_transaction_marker(producer_id, producer_epoch, commits)
        except Exception as bug:
            log_bug(context.name, bug)
            self._reload(context)

    # Carrying out what a shard decided

    def _run(self, context: CoordinatorContext[S], operation: Operation[S], now: Moment) -> None:
        try:
            effects = operation(context.shard, now)
        except Exception as bug:
            log_bug(context.name, bug)
            self._schedule_timer(context)
            return
        self._apply_effects(context, effects, now)

    def _apply_effects(self, context: CoordinatorContext[S], effects: Effects, now: Moment) -> None:
        if effects.records:
            self._append(context, effects, now)
        elif context.pending:
            # What the replies tell of may rest on records that are not committed yet.
            last = context.pending[-1]
            last.replies += effects.replies
            last.actions += effects.actions
        else:
            self._deliver(context, effects.replies, effects.actions)
        self._schedule_timer(context)

    def _append(self, context: CoordinatorContext[S], effects: Effects, now: Moment) -> None:
        try:
            batch = build_batch(
                [Record(timestamp=now.wall_ms, key=record.key, value=record.value) for record in effects.records],
                codec=self._codec(),
                producer_id=effects.producer_id,
                producer_epoch=effects.producer_epoch,
                transactional=effects.producer_id >= 0,
            )
            offset = self._stage(context, batch, DeferredEvent(effects.replies, effects.actions))
        except ProtocolError as error:
            self._append_failed(context, effects, error)
            return
        except Exception as bug:
            self._append_failed(context, effects, log_bug(context.name, bug))
            return
        try:
            self._replay(context.shard, effects, offset, now)
        except Exception as bug:
            log_bug(context.name, bug)
            self._reload(context)

    def _append_failed(self, context: CoordinatorContext[S], effects: Effects, error: ProtocolError) -> None:
        """The log took nothing, so nothing has happened, unless the shard had gone ahead."""
        fail_all(context.name, effects.replies, to_client_error(error))
        if not effects.replies:
            log.error("%s: a change could not be written: %s", context.name, error)
        if any(record.applied for record in effects.records):
            self._reload(context)

    def _replay(self, shard: S, effects: Effects, offset: int, now: Moment) -> None:
        for index, record in enumerate(effects.records):
            if not record.applied:
                shard.replay(
                    ReplayedRecord(
                        offset + index,
                        now.wall_ms,
                        record.key,
                        record.value,
                        effects.producer_id,
                        effects.producer_epoch,
                    )
                )

    def _stage(self, context: CoordinatorContext[S], batch: bytes, pending: DeferredEvent) -> int:
        def done(error: ProtocolError | None) -> None:
            self._on_append_completed(context, pending, error)

        offset = self._logs.append(context.partition, batch, done)
        context.in_flight += 1
        context.pending.append(pending)
        return offset

    def _on_append_completed(
        self, context: CoordinatorContext[S], pending: DeferredEvent, error: ProtocolError | None
    ) -> None:
        context.in_flight -= 1
        if error is not None:
            if pending in context.pending:
                log.error("%s: an append failed, rebuilding from the log: %s", context.name, error)
                self._reload(context)
        else:
            pending.committed = True
            while context.pending and context.pending[0].committed:
                first = context.pending.popleft()
                run_callback(context.name, first.done, None)
                self._deliver(context, first.replies, first.actions)
        if context.waits_for_log and context.in_flight == 0:
            context.waits_for_log = False
            self._schedule_load(context)

    def _deliver(self, context: CoordinatorContext[S], replies: Sequence[Reply], actions: Sequence[Action]) -> None:
        deliver(context.name, replies)
        for action in actions:
            try:
                if self.perform is None:
                    raise RuntimeError(f"{self.topic} has no handler for {action}")
                self.perform(action)
            except Exception as bug:
                log_bug(context.name, bug)

    # Time

    def _now(self) -> Moment:
        return Moment(self._clock.wall_ms(), self._clock.monotonic())

    def _schedule_timer(self, context: CoordinatorContext[S]) -> None:
        """One timer per shard, for its next deadline."""
        if context.state != ACTIVE:
            return
        at = context.shard.next_deadline()
        if at is None or (context.timer is not None and context.timer_at <= at):
            return
        if context.timer is not None:
            context.timer.cancel()
        context.timer_at = at
        delay = max(0.0, at - self._clock.monotonic())
        context.timer = asyncio.get_running_loop().call_later(delay, self._on_timer, context)

    def _on_timer(self, context: CoordinatorContext[S]) -> None:
        context.timer = None
        if context.state == ACTIVE:
            self._run(context, lambda shard, now: shard.expire(now), self._now())

    # Loading and letting go

    def _schedule_load(self, context: CoordinatorContext[S]) -> None:
        self._to_load.append(context)
        if self._loader is None:
            self._loader = self._tasks.spawn(f"loading {self.topic}", self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._to_load:
                await self._load(self._to_load.popleft())
        finally:
            self._loader = None

    async def _load(self, context: CoordinatorContext[S]) -> None:
        shard = context.shard
        try:
            count = await load(shard, self.topic, context.partition, self._logs)
        except (UnreadableLogError, StorageFault, ProtocolError) as problem:
            log.error("%s", problem)
            context.state = FAILED
            return
        except Exception as bug:
            log.error("%s cannot be loaded: a bug in braidlog", context.name, exc_info=bug)
            context.state = FAILED
            return
        # The partition may have moved on, or been lost, while its records were read.
        if self._contexts.get(context.partition) is context and context.shard is shard:
            log.debug("%s: loaded %d records", context.name, count)
            self._activate(context)

    def _activate(self, context: CoordinatorContext[S]) -> None:
        context.state = ACTIVE
        self._run(context, lambda shard, now: shard.on_loaded(now), self._now())

    def _reload(self, context: CoordinatorContext[S]) -> None:
        """The log is right, the shard may not be."""
        self._unload(context, CoordinatorNotAvailableError("a change could not be written; the broker's log says why"))
        context.shard = self._make_shard(context.leader_epoch)
        if context.in_flight:
            # What is on its way to the disk may still get there, and is to be read then.
            context.waits_for_log = True
        else:
            self._schedule_load(context)

    def _unload(self, context: CoordinatorContext[S], error: ProtocolError) -> None:
        was_active = context.state == ACTIVE
        context.state = LOADING
        context.waits_for_log = False
        if context.timer is not None:
            context.timer.cancel()
            context.timer = None
        pending = list(context.pending)
        context.pending.clear()
        for waiting in pending:
            run_callback(context.name, waiting.done, error)
            fail_all(context.name, waiting.replies, error)
        if was_active:
            deliver(context.name, context.shard.on_unloaded(error).replies)


def _unavailable(context: CoordinatorContext[S] | None) -> ProtocolError:
    if context is None:
        return NotCoordinatorError("this broker does not coordinate that; look up who does")
    if context.state == LOADING:
        return CoordinatorLoadInProgressError("the coordinator is loading; try again")
    return CoordinatorNotAvailableError("the coordinator's log cannot be read; the broker's log says why")
