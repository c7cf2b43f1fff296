"""The runtime of a coordinator: runs operations on shards, makes their records durable, replies when they are.

    submit → operation(shard) → stage one batch → replay it into the shard → … committed → replies, then actions

Appends to one partition are committed in their order, so a reply that carries no records of its own waits for those
pending before it: no client learns of a state that a crash could take back. A client does not wait for ever: after a
while it is refused, though the record stays and counts once it is committed. When an append fails, the shard and its
log differ: every request that waits is refused, and the shard is rebuilt by replay.

    elected → LOADING, to the end of the log → the high watermark is there → ACTIVE → deposed: all refused, forgotten

Each election has its own context. What was still going on in an earlier one, a load or an append, finds that its
context is no longer the partition's, and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from braidlog.coordinator.effects import Effects, Moment, Responder, SendMarkers
from braidlog.coordinator.loader import LogReader, UnreadableLogError, load
from braidlog.coordinator.partitioning import partition_for
from braidlog.coordinator.responders import AppendCallback, Reply, fail, fail_all, log_bug, to_client_error
from braidlog.coordinator.shard import CoordinatorShard, ReplayedRecord
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RequestTimedOutError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.timeout_queue import TimeoutQueue
from braidlog.wire.message import Message
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record

log = logging.getLogger("braidlog.coordinator")

S = TypeVar("S", bound=CoordinatorShard)

Operation = Callable[[S, Moment], Effects]

LOADING: Final = 0
ACTIVE: Final = 1
# Its log cannot be read: unavailable until the broker leads it anew.
FAILED: Final = 2
# As the settings have them by default.
_COMMIT_TIMEOUT_S: Final = 5.0
_MARKER_TIMEOUT_S: Final = 30.0


class PartitionWriter(LogReader, Protocol):
    """The partitions of one internal topic that this broker leads; the broker provides it."""

    def append(self, partition: int, batch: bytes, done: AppendCallback) -> int:
        """Stage a batch and return its first offset; raises ProtocolError, and then nothing was staged.

        Batches of a partition are committed in their order. After a failure none that was staged later is committed.
        However long that takes, `done` is only told what is certain.
        """
        ...

    def when_committed(self, partition: int, offset: int, done: Callable[[], None]) -> None:
        """Call `done` once the high watermark has reached `offset`, perhaps at once; never if leadership is lost."""
        ...


class FutureResponder:
    """The reply to code that awaits it."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def answer(self, response: Message) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def fail(self, error: ProtocolError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class DeferredEvent:
    """What waits for one batch, and those before it, to be committed."""

    __slots__ = ("actions", "callback", "committed", "done", "name", "replies")

    def __init__(
        self, name: str, replies: list[Reply], actions: list[SendMarkers], callback: AppendCallback | None = None
    ) -> None:
        """`name` is the partition's."""
        self.name = name
        self.replies = replies
        self.actions = actions
        self.callback = callback
        self.committed = False
        # Nobody waits for it any more.
        self.done = False

    def time_out(self) -> None:
        """The batch stays in the log, and in the shard: it may be committed yet, and the actions follow then."""
        self.refuse(RequestTimedOutError("the record is written, but not enough replicas have it yet; try again"))

    def refuse(self, error: ProtocolError) -> None:
        """`error` as of an append; clients get what stands for it."""
        self.done = True
        replies, self.replies = self.replies, []
        callback, self.callback = self.callback, None
        try:
            if callback is not None:
                callback(error)
        except Exception as bug:
            log_bug(self.name, bug)
        fail_all(self.name, replies, to_client_error(error))


class CoordinatorContext(Generic[S]):
    """A partition that this broker leads, with its shard and what waits for its log."""

    def __init__(self, topic: str, partition: int, leader_epoch: int, shard: S) -> None:
        self.name = f"{topic}-{partition}"
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = LOADING
        # In the order of the log.
        self.pending: deque[DeferredEvent] = deque()
        # To be loaded, but not before the log has settled.
        self.waits_for_log = False
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0


def _call_later(delay_s: float, work: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, work)


def _no_actions(action: SendMarkers) -> None:
    raise RuntimeError(f"this coordinator has no handler for {action}")


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic.

    `make_shard(leader_epoch)` gives an empty one; `perform` carries out what a shard wants done outside of it.
    """

    def __init__(
        self,
        topic: str,
        logs: PartitionWriter,
        make_shard: Callable[[int], S],
        partition_count: Callable[[], int],
        clock: Clock,
        tasks: Tasks,
        codec: Callable[[], int] = lambda: 0,
        perform: Callable[[SendMarkers], None] = _no_actions,
        commit_timeout_s: Callable[[], float] = lambda: _COMMIT_TIMEOUT_S,
        marker_timeout_s: Callable[[], float] = lambda: _MARKER_TIMEOUT_S,
    ) -> None:
        """`commit_timeout_s`: how long a client waits for a commit; `marker_timeout_s`: who sent a marker."""
        self.topic = topic
        self._logs = logs
        self._make_shard = make_shard
        self._partition_count = partition_count
        self._clock = clock
        self._tasks = tasks
        self._codec = codec
        self._perform = perform
        self._contexts: dict[int, CoordinatorContext[S]] = {}
        # By partition, appends that are neither committed nor failed: also those of earlier elections, and those whose
        # requests were refused meanwhile.
        self._in_flight: Counter[int] = Counter()
        self._to_load: deque[CoordinatorContext[S]] = deque()
        self._loader: asyncio.Task[None] | None = None
        self._commits = TimeoutQueue(_call_later, clock.monotonic, commit_timeout_s)
        self._markers = TimeoutQueue(_call_later, clock.monotonic, marker_timeout_s)

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
        if start == end and not self._in_flight[partition]:
            self._activate(context)
        else:
            self._load_when_settled(context)

    def on_resignation(self, partition: int) -> None:
        context = self._contexts.pop(partition, None)
        if context is not None:
            self._unload(context, NotCoordinatorError("another broker coordinates this now; look it up again"))

    def stop(self) -> None:
        """The broker stops: refuse every request that waits."""
        for partition in list(self._contexts):
            self.on_resignation(partition)

    def partition_of(self, name: str) -> int:
        return partition_for(name, self._partition_count())

    def active_partitions(self) -> list[int]:
        return [partition for partition, context in self._contexts.items() if context.state == ACTIVE]

    def active_shards(self) -> list[S]:
        """For metrics, which count what is in them; operations go through `submit`."""
        return [context.shard for context in self._contexts.values() if context.state == ACTIVE]

    def loading_partitions(self) -> list[int]:
        return [partition for partition, context in self._contexts.items() if context.state == LOADING]

    # Operations

    def submit(self, key: str | int, responder: Responder, operation: Operation[S]) -> None:
        """Run an operation on the shard that a name belongs to, or on that of a partition.

        The responder is answered, or failed, exactly once.
        """
        context = self._contexts.get(self.partition_of(key) if isinstance(key, str) else key)
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

    async def ask(self, key: str | int, operation: Callable[[S, Responder, Moment], Effects]) -> Message:
        """`submit` for code that awaits the reply."""
        responder = FutureResponder()
        self.submit(key, responder, lambda shard, now: operation(shard, responder, now))
        return await responder.future

    def submit_to_all(self, operation: Operation[S]) -> None:
        """Run an operation without a reply on every active shard: a topic is gone, or has more partitions."""
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
        """End a transaction in a shard's own partition: its records count, or not, from here on in the log.

        Errors are those of a partition, since transaction coordinators do not know those of group coordinators.
        """
        context = self._contexts.get(partition)
        if context is None or context.state != ACTIVE:
            done(NotLeaderOrFollowerError(_unavailable(context).message))
            return
        batch = build_end_txn_marker(
            commit=commits,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.wall_ms(),
            coordinator_epoch=coordinator_epoch,
        )
        event = DeferredEvent(context.name, [], [], done)
        try:
            self._logs.append(partition, batch, partial(self._on_append_completed, context, event))
        except ProtocolError as error:
            done(error)
            return
        self._in_flight[partition] += 1
        context.pending.append(event)
        self._markers.add(event)
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
        """Append the records as one batch and replay them; replies and actions follow when the log has them."""
        event = DeferredEvent(context.name, effects.replies, effects.actions)
        if not effects.records:
            context.pending.append(event)
            if len(context.pending) == 1:
                event.committed = True
                self._answer_committed(context)
            else:
                # What the replies say may rest on records that are not committed yet.
                event.committed = True
                self._commits.add(event)
            self._schedule_timer(context)
            return
        try:
            batch = build_batch(
                [Record(timestamp=now.wall_ms, key=record.key, value=record.value) for record in effects.records],
                codec=self._codec(),
                producer_id=effects.producer_id,
                producer_epoch=effects.producer_epoch,
                transactional=effects.producer_id >= 0,
            )
            on_completed = partial(self._on_append_completed, context, event)
            offset = self._logs.append(context.partition, batch, on_completed)
        except Exception as problem:
            error = problem if isinstance(problem, ProtocolError) else log_bug(context.name, problem)
            self._append_failed(context, effects, error)
            self._schedule_timer(context)
            return
        self._in_flight[context.partition] += 1
        context.pending.append(event)
        self._commits.add(event)
        producer_id, producer_epoch = effects.producer_id, effects.producer_epoch
        try:
            for index, record in enumerate(effects.records):
                if not record.applied:
                    context.shard.replay(
                        ReplayedRecord(
                            offset + index, now.wall_ms, record.key, record.value, producer_id, producer_epoch
                        )
                    )
        except Exception as bug:
            log_bug(context.name, bug)
            self._reload(context)
        self._schedule_timer(context)

    def _append_failed(self, context: CoordinatorContext[S], effects: Effects, error: ProtocolError) -> None:
        """The log took nothing, so nothing has happened, unless the shard had gone ahead."""
        fail_all(context.name, effects.replies, to_client_error(error))
        if not effects.replies:
            log.error("%s: a change could not be written: %s", context.name, error)
        if any(record.applied for record in effects.records):
            self._reload(context)

    def _on_append_completed(
        self, context: CoordinatorContext[S], event: DeferredEvent, error: ProtocolError | None
    ) -> None:
        """A batch is committed, or never will be."""
        self._in_flight[context.partition] -= 1
        if error is not None:
            if event in context.pending:
                self._lost_append(context, error)
        else:
            event.committed = True
            self._answer_committed(context)
        waiting = self._contexts.get(context.partition)
        if waiting is not None and waiting.waits_for_log:
            self._load_when_settled(waiting)

    def _answer_committed(self, context: CoordinatorContext[S]) -> None:
        """Reply to what waited for a commit, up to the first that still waits."""
        while context.pending and context.pending[0].committed:
            first = context.pending.popleft()
            first.done = True
            # Each by itself: one that fails keeps none of the others back.
            for responder, response in first.replies:
                try:
                    if isinstance(response, ProtocolError):
                        responder.fail(response)
                    else:
                        responder.answer(response)
                except Exception as bug:
                    fail(context.name, responder, log_bug(context.name, bug))
            if first.callback is not None:
                try:
                    first.callback(None)
                except Exception as bug:
                    log_bug(context.name, bug)
            for action in first.actions:
                try:
                    self._perform(action)
                except Exception as bug:
                    log_bug(context.name, bug)

    def _lost_append(self, context: CoordinatorContext[S], error: ProtocolError) -> None:
        if isinstance(error, NotLeaderOrFollowerError):
            # Another broker leads, which this one is told in a moment. The record is that one's to keep or to drop.
            self.on_resignation(context.partition)
            return
        log.error("%s: an append failed, rebuilding from the log: %s", context.name, error)
        self._reload(context)

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

    # Loading and unloading

    def _load_when_settled(self, context: CoordinatorContext[S]) -> None:
        """What is on its way to the disk may still get there, and is to be read then."""
        context.waits_for_log = self._in_flight[context.partition] > 0
        if context.waits_for_log:
            return
        self._to_load.append(context)
        if self._loader is None:
            self._loader = self._tasks.spawn(f"loading {self.topic}", self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._to_load:
                context = self._to_load.popleft()
                if self._is_current(context):
                    await self._load(context)
        finally:
            self._loader = None

    async def _load(self, context: CoordinatorContext[S]) -> None:
        shard = context.shard
        try:
            loaded = await load(shard, self.topic, context.partition, self._logs)
            if not self._is_current(context, shard):
                # The partition has moved on, or was lost, while its records were read.
                return
            log.debug("%s: loaded %d records", context.name, loaded.records)
            # What is not committed could be lost with a leader: nobody is told of it before.
            self._logs.when_committed(context.partition, loaded.end, partial(self._on_committed, context, shard))
        except (UnreadableLogError, StorageFault, ProtocolError) as problem:
            if self._is_current(context, shard):
                log.error("%s", problem)
                context.state = FAILED
        except Exception as bug:
            log.error("%s cannot be loaded: a bug in braidlog", context.name, exc_info=bug)
            context.state = FAILED

    def _is_current(self, context: CoordinatorContext[S], shard: S | None = None) -> bool:
        """Whether the context is its partition's, and `shard` its shard."""
        return self._contexts.get(context.partition) is context and (shard is None or context.shard is shard)

    def _on_committed(self, context: CoordinatorContext[S], shard: S) -> None:
        """The high watermark has reached the end of what was loaded."""
        if self._is_current(context, shard) and context.state == LOADING:
            self._activate(context)

    def _activate(self, context: CoordinatorContext[S]) -> None:
        context.state = ACTIVE
        self._run(context, lambda shard, now: shard.on_loaded(now), self._now())

    def _reload(self, context: CoordinatorContext[S]) -> None:
        """The log is right, the shard may not be."""
        self._unload(context, CoordinatorNotAvailableError("a change could not be written; the broker's log says why"))
        context.shard = self._make_shard(context.leader_epoch)
        self._load_when_settled(context)

    def _unload(self, context: CoordinatorContext[S], error: ProtocolError) -> None:
        was_active = context.state == ACTIVE
        context.state = LOADING
        context.waits_for_log = False
        if context.timer is not None:
            context.timer.cancel()
            context.timer = None
        pending = list(context.pending)
        context.pending.clear()
        for event in pending:
            replies, event.replies = event.replies, []
            event.refuse(NotLeaderOrFollowerError(error.message))
            fail_all(context.name, replies, error)
        if was_active:
            fail_all(context.name, context.shard.on_unloaded(error).replies, error)


def _unavailable(context: CoordinatorContext[S] | None) -> ProtocolError:
    if context is None:
        return NotCoordinatorError("this broker does not coordinate that; look up who does")
    if context.state == LOADING:
        return CoordinatorLoadInProgressError("the coordinator is loading; try again")
    return CoordinatorNotAvailableError("the coordinator's log cannot be read; the broker's log says why")
