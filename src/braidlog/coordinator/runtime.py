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
from typing import Generic, TypeVar

from braidlog.coordinator.append_errors import told_to_clients
from braidlog.coordinator.delivery import Reply, deliver, refuse_all, report, tell
from braidlog.coordinator.effects import Action, Effects, Moment, Ticket
from braidlog.coordinator.loading import UnreadableShardError, load
from braidlog.coordinator.partitioning import partition_for
from braidlog.coordinator.port import Done, Partitions
from braidlog.coordinator.shard import ReplayedRecord, Shard
from braidlog.coordinator.slot import ACTIVE, LOADING, UNREADABLE, Slot, Staged
from braidlog.coordinator.tickets import FutureTicket
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
from braidlog.wire.records.builder import build_batch, build_marker
from braidlog.wire.records.reading import Record

log = logging.getLogger("braidlog.coordinator")

S = TypeVar("S", bound=Shard)

Operation = Callable[[S, Moment], Effects]


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
        self._slots: dict[int, Slot[S]] = {}
        self._to_load: deque[Slot[S]] = deque()
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
        slot = Slot(self.topic, partition, leader_epoch, self._make_shard(leader_epoch))
        self._slots[partition] = slot
        try:
            start, end = self._logs.bounds(partition)
        except ProtocolError as error:
            slot.state = UNREADABLE
            log.error("%s cannot be loaded: %s", slot.name, error)
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
            # Nothing durable has changed, but perhaps what is due next.
            self._arm(slot)
            ticket.fail(error)
            return
        except Exception as bug:
            self._arm(slot)
            ticket.fail(report(slot.name, bug))
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
        staged = Staged([], [])
        staged.done = done
        try:
            self._stage(slot, batch, staged)
        except ProtocolError as error:
            done(error)
            return
        try:
            slot.shard.replay_marker(producer_id, producer_epoch, commits)
        except Exception as bug:
            report(slot.name, bug)
            self._rebuild(slot)

    # Carrying out what a shard decided

    def _run(self, slot: Slot[S], operation: Operation[S], now: Moment) -> None:
        try:
            effects = operation(slot.shard, now)
        except Exception as bug:
            report(slot.name, bug)
            self._arm(slot)
            return
        self._carry_out(slot, effects, now)

    def _carry_out(self, slot: Slot[S], effects: Effects, now: Moment) -> None:
        if effects.records:
            self._append(slot, effects, now)
        elif slot.staged:
            # What the replies tell of may rest on records that are not committed yet.
            last = slot.staged[-1]
            last.replies += effects.replies
            last.actions += effects.actions
        else:
            self._deliver(slot, effects.replies, effects.actions)
        self._arm(slot)

    def _append(self, slot: Slot[S], effects: Effects, now: Moment) -> None:
        try:
            batch = build_batch(
                [Record(timestamp=now.wall_ms, key=record.key, value=record.value) for record in effects.records],
                codec=self._codec(),
                producer_id=effects.producer_id,
                producer_epoch=effects.producer_epoch,
                transactional=effects.producer_id >= 0,
            )
            offset = self._stage(slot, batch, Staged(effects.replies, effects.actions))
        except ProtocolError as error:
            self._refused(slot, effects, error)
            return
        except Exception as bug:
            self._refused(slot, effects, report(slot.name, bug))
            return
        try:
            self._replay(slot.shard, effects, offset, now)
        except Exception as bug:
            report(slot.name, bug)
            self._rebuild(slot)

    def _refused(self, slot: Slot[S], effects: Effects, error: ProtocolError) -> None:
        """The log took nothing, so nothing has happened, unless the shard had gone ahead."""
        refuse_all(slot.name, effects.replies, told_to_clients(error))
        if not effects.replies:
            log.error("%s: a change could not be written: %s", slot.name, error)
        if any(record.applied for record in effects.records):
            self._rebuild(slot)

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

    def _stage(self, slot: Slot[S], batch: bytes, staged: Staged) -> int:
        def done(error: ProtocolError | None) -> None:
            self._on_done(slot, staged, error)

        offset = self._logs.append(slot.partition, batch, done)
        slot.in_flight += 1
        slot.staged.append(staged)
        return offset

    def _on_done(self, slot: Slot[S], staged: Staged, error: ProtocolError | None) -> None:
        slot.in_flight -= 1
        if error is not None:
            if staged in slot.staged:
                log.error("%s: an append failed, rebuilding from the log: %s", slot.name, error)
                self._rebuild(slot)
        else:
            staged.committed = True
            while slot.staged and slot.staged[0].committed:
                first = slot.staged.popleft()
                tell(slot.name, first.done, None)
                self._deliver(slot, first.replies, first.actions)
        if slot.waits_for_log and slot.in_flight == 0:
            slot.waits_for_log = False
            self._load_later(slot)

    def _deliver(self, slot: Slot[S], replies: Sequence[Reply], actions: Sequence[Action]) -> None:
        deliver(slot.name, replies)
        for action in actions:
            try:
                if self.perform is None:
                    raise RuntimeError(f"{self.topic} has nobody to perform {action}")
                self.perform(action)
            except Exception as bug:
                report(slot.name, bug)

    # Time

    def _now(self) -> Moment:
        return Moment(self._clock.wall_ms(), self._clock.monotonic())

    def _arm(self, slot: Slot[S]) -> None:
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

    def _on_timer(self, slot: Slot[S]) -> None:
        slot.timer = None
        if slot.state == ACTIVE:
            self._run(slot, lambda shard, now: shard.expire(now), self._now())

    # Loading and letting go

    def _load_later(self, slot: Slot[S]) -> None:
        self._to_load.append(slot)
        if self._loader is None:
            self._loader = self._tasks.spawn(f"loading {self.topic}", self._load_all())

    async def _load_all(self) -> None:
        try:
            while self._to_load:
                await self._load(self._to_load.popleft())
        finally:
            self._loader = None

    async def _load(self, slot: Slot[S]) -> None:
        shard = slot.shard
        try:
            count = await load(shard, self.topic, slot.partition, self._logs)
        except (UnreadableShardError, StorageFault, ProtocolError) as problem:
            log.error("%s", problem)
            slot.state = UNREADABLE
            return
        except Exception as bug:
            log.error("%s cannot be loaded: a bug in braidlog", slot.name, exc_info=bug)
            slot.state = UNREADABLE
            return
        # The partition may have moved on, or been lost, while its records were read.
        if self._slots.get(slot.partition) is slot and slot.shard is shard:
            log.debug("%s: loaded %d records", slot.name, count)
            self._activate(slot)

    def _activate(self, slot: Slot[S]) -> None:
        slot.state = ACTIVE
        self._run(slot, lambda shard, now: shard.loaded(now), self._now())

    def _rebuild(self, slot: Slot[S]) -> None:
        """The log is right, the shard may not be."""
        self._give_up(slot, CoordinatorNotAvailableError("a change could not be written; the broker's log says why"))
        slot.shard = self._make_shard(slot.leader_epoch)
        if slot.in_flight:
            # What is on its way to the disk may still get there, and is to be read then.
            slot.waits_for_log = True
        else:
            self._load_later(slot)

    def _give_up(self, slot: Slot[S], error: ProtocolError) -> None:
        was_active = slot.state == ACTIVE
        slot.state = LOADING
        slot.waits_for_log = False
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        staged = list(slot.staged)
        slot.staged.clear()
        for waiting in staged:
            tell(slot.name, waiting.done, error)
            refuse_all(slot.name, waiting.replies, error)
        if was_active:
            deliver(slot.name, slot.shard.abandon(error).replies)


def _unavailable(slot: Slot[S] | None) -> ProtocolError:
    if slot is None:
        return NotCoordinatorError("this broker does not coordinate that; look up who does")
    if slot.state == LOADING:
        return CoordinatorLoadInProgressError("the coordinator is loading; try again")
    return CoordinatorNotAvailableError("the coordinator's log cannot be read; the broker's log says why")
