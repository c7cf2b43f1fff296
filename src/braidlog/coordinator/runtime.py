"""The runtime of a coordinator: runs operations on shards, makes their records durable, answers when they are.

    submit → operation(shard) → stage one batch → replay it into the shard → … committed → replies, then actions

Appends to one partition are committed in their order, so a reply that carries no records of its own waits for those
staged before it: nobody is told of a state that a crash could take back. When an append fails, what the shard believes
and what its log says differ: everybody who waits is refused, and the shard is rebuilt by replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from braidlog.coordinator.append_errors import told_to_clients
from braidlog.coordinator.effects import Action, Effects, Moment, Ticket
from braidlog.coordinator.loading import UnreadableShardError, load
from braidlog.coordinator.partitioning import partition_for
from braidlog.coordinator.port import Done, Partitions
from braidlog.coordinator.shard import ReplayedRecord, Shard
from braidlog.coordinator.tickets import FutureTicket
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProtocolError,
    UnknownServerError,
)
from braidlog.core.tasks import Tasks
from braidlog.wire.message import Message
from braidlog.wire.records.builder import build_batch, build_marker
from braidlog.wire.records.reading import Record

log = logging.getLogger("braidlog.coordinator")

S = TypeVar("S", bound=Shard)

LOADING: Final = 0
ACTIVE: Final = 1
# Its log cannot be read: unavailable until the broker leads it anew.
UNREADABLE: Final = 2

Operation = Callable[[S, Moment], Effects]


class _Staged:
    """What waits for one batch to be committed."""

    __slots__ = ("actions", "committed", "done", "replies")

    def __init__(self, replies: list[tuple[Ticket, Message | ProtocolError]], actions: list[Action]) -> None:
        self.replies = replies
        self.actions = actions
        self.done: Done | None = None
        self.committed = False


class _Slot(Generic[S]):
    """A partition that this broker leads, and its shard."""

    def __init__(self, partition: int, leader_epoch: int, shard: S) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = LOADING
        # In the order of the log.
        self.staged: deque[_Staged] = deque()
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0


class Coordinator(Generic[S]):
    """The shards of one internal topic. `make_shard(leader_epoch)` gives an empty one."""

    def __init__(
        self,
        topic: str,
        logs: Partitions,
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
        self._slots: dict[int, _Slot[S]] = {}
        self._to_load: deque[_Slot[S]] = deque()
        self._loader: asyncio.Task[None] | None = None
        # How actions are done; set by whoever knows the kinds of this coordinator.
        self.perform: Callable[[Action], None] | None = None

    # Leadership

    def lead(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition now: load its shard, at once where there is nothing to load."""
        slot = self._slots.get(partition)
        if slot is not None and slot.leader_epoch == leader_epoch and slot.state != UNREADABLE:
            return
        self.resign(partition)
        slot = _Slot(partition, leader_epoch, self._make_shard(leader_epoch))
        self._slots[partition] = slot
        try:
            start, end = self._logs.bounds(partition)
        except ProtocolError as error:
            slot.state = UNREADABLE
            log.error("%s-%d cannot be loaded: %s", self.topic, partition, error)
            return
        if start == end:
            self._activate(slot)
        else:
            self._load_later(slot)

    def resign(self, partition: int) -> None:
        slot = self._slots.pop(partition, None)
        if slot is not None:
            self._give_up(slot, NotCoordinatorError("another broker coordinates this now; look it up again"))

    def stop(self) -> None:
        """Nobody is left waiting when the broker stops."""
        for partition in list(self._slots):
            self.resign(partition)

    def partition_of(self, name: str) -> int:
        return partition_for(name, self._partition_count())

    def active_partitions(self) -> list[int]:
        return [partition for partition, slot in self._slots.items() if slot.state == ACTIVE]

    def active_shards(self) -> list[S]:
        """For whoever counts what is in them; operations go through `submit`."""
        return [slot.shard for slot in self._slots.values() if slot.state == ACTIVE]

    def loading_partitions(self) -> list[int]:
        return [partition for partition, slot in self._slots.items() if slot.state == LOADING]

    # Operations

    def submit(self, name: str, ticket: Ticket, operation: Operation[S]) -> None:
        """Run an operation on the shard that `name` belongs to; the ticket is answered, or failed, exactly once."""
        self.submit_to(self.partition_of(name), ticket, operation)

    def submit_to(self, partition: int, ticket: Ticket, operation: Operation[S]) -> None:
        slot = self._slots.get(partition)
        if slot is None or slot.state != ACTIVE:
            ticket.fail(_unavailable(slot))
            return
        now = self._now()
        try:
            effects = operation(slot.shard, now)
        except ProtocolError as error:
            ticket.fail(error)
            return
        except Exception as bug:
            ticket.fail(self._report(slot, bug))
            return
        self._carry_out(slot, effects, now)

    async def ask(self, name: str, operation: Callable[[S, Ticket, Moment], Effects]) -> Message:
        return await self.ask_partition(self.partition_of(name), operation)

    async def ask_partition(self, partition: int, operation: Callable[[S, Ticket, Moment], Effects]) -> Message:
        ticket = FutureTicket()
        self.submit_to(partition, ticket, lambda shard, now: operation(shard, ticket, now))
        return await ticket.future

    def tell_all(self, operation: Operation[S]) -> None:
        """Run something that nobody waits for on every active shard: a topic is gone, or has more partitions."""
        now = self._now()
        for slot in list(self._slots.values()):
            if slot.state == ACTIVE:
                self._run(slot, operation, now)

    def write_marker(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        done: Done,
    ) -> None:
        """End a transaction in a shard's own partition: its records count, or not, from here on in the log."""
        slot = self._slots.get(partition)
        if slot is None or slot.state != ACTIVE:
            done(_unavailable(slot))
            return
        batch = build_marker(
            commit=commits,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.wall_ms(),
            coordinator_epoch=coordinator_epoch,
        )
        staged = _Staged([], [])
        staged.done = done
        try:
            self._stage(slot, batch, staged)
        except ProtocolError as error:
            done(error)
            return
        slot.shard.replay_marker(producer_id, producer_epoch, commits)

    # Carrying out what a shard decided

    def _run(self, slot: _Slot[S], operation: Operation[S], now: Moment) -> None:
        try:
            effects = operation(slot.shard, now)
        except Exception as bug:
            self._report(slot, bug)
            return
        self._carry_out(slot, effects, now)

    def _carry_out(self, slot: _Slot[S], effects: Effects, now: Moment) -> None:
        if effects.records:
            self._append(slot, effects, now)
        elif slot.staged:
            # What the replies tell of may rest on records that are not committed yet.
            last = slot.staged[-1]
            last.replies += effects.replies
            last.actions += effects.actions
        else:
            self._deliver(effects.replies, effects.actions)
        self._arm(slot)

    def _append(self, slot: _Slot[S], effects: Effects, now: Moment) -> None:
        transactional = effects.producer_id >= 0
        batch = build_batch(
            [Record(timestamp=now.wall_ms, key=record.key, value=record.value) for record in effects.records],
            codec=self._codec(),
            producer_id=effects.producer_id,
            producer_epoch=effects.producer_epoch,
            transactional=transactional,
        )
        try:
            offset = self._stage(slot, batch, _Staged(effects.replies, effects.actions))
        except ProtocolError as error:
            told = told_to_clients(error)
            for ticket, _ in effects.replies:
                ticket.fail(told)
            if not effects.replies:
                log.error("%s-%d: a change could not be written: %s", self.topic, slot.partition, error)
            if any(record.applied for record in effects.records):
                self._rebuild(slot)
            return
        for index, record in enumerate(effects.records):
            if not record.applied:
                replayed = ReplayedRecord(
                    offset + index,
                    now.wall_ms,
                    record.key,
                    record.value,
                    effects.producer_id,
                    effects.producer_epoch,
                )
                slot.shard.replay(replayed)

    def _stage(self, slot: _Slot[S], batch: bytes, staged: _Staged) -> int:
        def done(error: ProtocolError | None) -> None:
            self._on_done(slot, staged, error)

        offset = self._logs.append(slot.partition, batch, done)
        slot.staged.append(staged)
        return offset

    def _on_done(self, slot: _Slot[S], staged: _Staged, error: ProtocolError | None) -> None:
        if error is not None:
            if staged in slot.staged:
                log.error("%s-%d: an append failed, rebuilding from the log: %s", self.topic, slot.partition, error)
                self._rebuild(slot)
            return
        staged.committed = True
        while slot.staged and slot.staged[0].committed:
            first = slot.staged.popleft()
            if first.done is not None:
                first.done(None)
            self._deliver(first.replies, first.actions)

    def _deliver(self, replies: Sequence[tuple[Ticket, Message | ProtocolError]], actions: Sequence[Action]) -> None:
        for ticket, response in replies:
            if isinstance(response, ProtocolError):
                ticket.fail(response)
            else:
                ticket.answer(response)
        for action in actions:
            if self.perform is None:
                raise RuntimeError(f"{self.topic} has nobody to perform {action}")
            self.perform(action)

    # Time

    def _now(self) -> Moment:
        return Moment(self._clock.wall_ms(), self._clock.monotonic())

    def _arm(self, slot: _Slot[S]) -> None:
        """One timer per shard, for its next deadline."""
        if slot.state != ACTIVE:
            return
        at = slot.shard.next_deadline()
        if at is None or (slot.timer is not None and slot.timer_at <= at):
            return
        if slot.timer is not None:
            slot.timer.cancel()
        slot.timer_at = at
        delay = max(0.0, at - self._clock.monotonic())
        slot.timer = asyncio.get_running_loop().call_later(delay, self._on_timer, slot)

    def _on_timer(self, slot: _Slot[S]) -> None:
        slot.timer = None
        if slot.state == ACTIVE:
            self._run(slot, lambda shard, now: shard.expire(now), self._now())
            self._arm(slot)

    # Loading and letting go

    def _load_later(self, slot: _Slot[S]) -> None:
        self._to_load.append(slot)
        if self._loader is None:
            self._loader = self._tasks.spawn(f"loading {self.topic}", self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._to_load:
                await self._load(self._to_load.popleft())
        finally:
            self._loader = None

    async def _load(self, slot: _Slot[S]) -> None:
        shard = slot.shard
        try:
            count = await load(shard, self.topic, slot.partition, self._logs)
        except (UnreadableShardError, StorageFault, ProtocolError) as problem:
            log.error("%s", problem)
            slot.state = UNREADABLE
            return
        except Exception as bug:
            log.error("%s-%d cannot be loaded: a bug in braidlog", self.topic, slot.partition, exc_info=bug)
            slot.state = UNREADABLE
            return
        # The partition may have moved on, or been lost, while its records were read.
        if self._slots.get(slot.partition) is slot and slot.shard is shard:
            log.debug("%s-%d: loaded %d records", self.topic, slot.partition, count)
            self._activate(slot)

    def _activate(self, slot: _Slot[S]) -> None:
        slot.state = ACTIVE
        self._run(slot, lambda shard, now: shard.loaded(now), self._now())

    def _rebuild(self, slot: _Slot[S]) -> None:
        """The log is right, the shard may not be."""
        self._give_up(slot, CoordinatorNotAvailableError("a change could not be written; the broker's log says why"))
        slot.shard = self._make_shard(slot.leader_epoch)
        self._load_later(slot)

    def _give_up(self, slot: _Slot[S], error: ProtocolError) -> None:
        was_active = slot.state == ACTIVE
        slot.state = LOADING
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        staged = list(slot.staged)
        slot.staged.clear()
        for waiting in staged:
            if waiting.done is not None:
                waiting.done(error)
            for ticket, _ in waiting.replies:
                ticket.fail(error)
        if was_active:
            self._deliver(slot.shard.abandon(error).replies, ())

    def _report(self, slot: _Slot[S], bug: Exception) -> ProtocolError:
        log.error("%s-%d: a bug in braidlog, please report it", self.topic, slot.partition, exc_info=bug)
        return UnknownServerError("the broker met a bug; its log has the details")


def _unavailable(slot: _Slot[S] | None) -> ProtocolError:
    if slot is None:
        return NotCoordinatorError("this broker does not coordinate that; look up who does")
    if slot.state == LOADING:
        return CoordinatorLoadInProgressError("the coordinator is loading; try again")
    return CoordinatorNotAvailableError("the coordinator's log cannot be read; the broker's log says why")
