"""The consumer's face: what programs call, from one thread at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from braidlog.client.consumer.intake import RecordIterator
from braidlog.client.consumer.listener import RebalanceListener
from braidlog.client.consumer.offsets import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from braidlog.client.consumer.partition import UNKNOWN
from braidlog.client.consumer.read_side import ReadSide
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.consumer.reset_policy import EARLIEST, LATEST
from braidlog.client.consumer.subscription import SubscriptionKind
from braidlog.client.consumer.thread_check import OneThread
from braidlog.client.errors import ClosedError, RequestTimeout
from braidlog.client.view import PartitionView, TopicView
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.consumer.commits import Commits

T = TypeVar("T")
Partitions = Iterable[TopicPartition | tuple[str, int]]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]

_CLOSE_S: Final = 30.0
_LONG: Final = 1e9


class Consumer:
    """Reads records, by itself or sharing the partitions of topics with its group.

        with Consumer(bootstrap_servers="localhost:9092", group_id="shop") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.partition, record.offset, record.value)

    Belongs to one thread at a time; only `wakeup` may come from another.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._one_thread = OneThread("consumer")
        self._closed = False
        self._read_side = side = ReadSide(config, settings)
        self._subscription = side.subscription
        self._intake = side.intake
        self._doorbell = side.doorbell
        self._membership = side.membership
        self._commits = side.commits
        self._interceptors = side.interceptors
        self._most = side.settings.number("max.poll.records")
        self._api_timeout_s = side.settings.seconds("default.api.timeout.ms")

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share the partitions of these topics, or of all that match a pattern, with the group; replaces the last call.

        A plain string is one topic; one that starts with `^` is a pattern, as `re.compile(...)` is. No topics at all
        unsubscribes.
        """
        with self._one_thread:
            self._settle()
            if isinstance(topics, str):
                topics = re.compile(topics) if topics.startswith("^") else [topics]
            if isinstance(topics, re.Pattern):
                self._need_group("subscribe")
                self._subscription.subscribe_pattern(topics, self._read_side.metadata.view.topics, listener)
                return
            names = list(topics)
            for name in names:
                if not isinstance(name, str) or not name.strip():
                    raise UserError(f"{name!r} is no topic; give names, or a pattern")
            if not names:
                self.unsubscribe()
                return
            self._need_group("subscribe")
            self._subscription.subscribe(names, listener)

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, whatever others do; needs no group."""
        with self._one_thread:
            self._settle()
            wanted = _partitions(partitions)
            if not wanted:
                self.unsubscribe()
                return
            if self._subscription.kind is SubscriptionKind.MANUAL and self._commits is not None:
                self._commits.auto_commit_before_rebalance(self._deadline(None))
            self._subscription.assign(wanted)
            self._read_side.fetcher.nudge()

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        with self._one_thread:
            self._settle()
            if self._membership is not None and self._subscription.is_auto:
                self._membership.leave(self._deadline(None))
            self._subscription.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a pattern those that match now."""
        with self._one_thread:
            return self._subscription.topics if self._subscription.is_auto else frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        with self._one_thread:
            return self._subscription.assigned()

    # Records

    def poll(self, timeout_s: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, waiting so long for the first; at most `max.poll.records`. Positions move past what is returned."""
        with self._one_thread:
            most = self._most if max_records is None else max_records
            if most < 1:
                raise UserError(f"max_records={most}: ask for at least one")
            if not self._await_records(time.monotonic() + timeout_s, most):
                return []
            records = self._intake.take(most)
            return records if self._interceptors is None else self._interceptors.on_consume(records)

    def poll_one(self, timeout_s: float = 0.0) -> ConsumerRecord | None:
        """The next record, or None after so long."""
        with self._one_thread:
            if not self._await_records(time.monotonic() + timeout_s, self._most):
                return None
            return self._intake.take(1)[0]

    def poll_arrow(self, timeout_s: float = 0.0, **options: Any) -> Any:
        """As `poll`, with whole batches as one Arrow table: no object for each record."""
        from braidlog.client.arrow.consuming import poll_arrow

        return poll_arrow(self, timeout_s, **options)

    def __iter__(self) -> RecordIterator:
        return RecordIterator(self._intake, self._await_chunk)

    def _await_chunk(self) -> bool:
        """For the iterator: False when the consumer was closed."""
        if self._closed:
            return False
        with self._one_thread:
            intake = self._intake
            if not self._await_records(_LONG, self._most):
                return False
            if self._interceptors is not None and intake.at == 0:
                intake.chunk = self._interceptors.on_consume(intake.chunk)
                intake.count = len(intake.chunk)
            return intake.at < intake.count or self._await_chunk()

    def _await_records(self, deadline: float, most: int) -> bool:
        """What every poll does: look after the group, then see that there are records."""
        self._settle()
        if self._subscription.kind is SubscriptionKind.NONE:
            raise UserError("nothing to read: subscribe() to topics or assign() partitions first")
        side = self._read_side
        while True:
            self._doorbell.check()
            side.raise_failures()
            due = deadline
            if self._membership is not None and self._subscription.is_auto:
                self._membership.advance(deadline)
                due = min(deadline, self._membership.next_due() or deadline)
            if self._commits is not None:
                self._commits.tick(time.monotonic())
            if self._intake.refill(most):
                return True
            now = time.monotonic()
            if now >= deadline:
                return False
            self._doorbell.wait(due - now)

    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        with self._one_thread:
            self._settle()
            epoch = -1
            if isinstance(offset, OffsetAndMetadata):
                offset, _, epoch = offset
            if offset < 0:
                raise UserError(f"offset {offset} does not exist; seek_to_beginning() and seek_to_end() find the ends")
            with self._subscription.lock:
                self._subscription.state(TopicPartition(*partition)).seek(offset, epoch)
            self._read_side.fetcher.nudge()

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Read from the start of these partitions (all that are assigned, unless some are named)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Read only what comes from now on."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Partitions, target: int) -> None:
        with self._one_thread:
            self._settle()
            with self._subscription.lock:
                for each in _partitions(partitions) or self._subscription.assignment():
                    self._subscription.state(each).ask_reset(target)
            self._read_side.fetcher.nudge()

    def position(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """The offset of the next record that poll returns; waits until it is known."""
        with self._one_thread:
            self._settle()
            where = TopicPartition(*partition)
            state = self._subscription.state(where)
            deadline = self._deadline(timeout_s)
            self._read_side.fetcher.nudge()
            while not state.has_position():
                self._doorbell.check()
                self._read_side.raise_failures()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RequestTimeout(f"where to read {where} is not known yet; see whether its leader answers")
                self._doorbell.wait(left)
            return int(state.position)

    def pause(self, partitions: Partitions) -> None:
        """Let poll return nothing of these until `resume`; they stay assigned."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Partitions) -> None:
        self._set_paused(partitions, False)
        self._read_side.fetcher.nudge()

    def _set_paused(self, partitions: Partitions, paused: bool) -> None:
        with self._one_thread:
            self._settle()
            with self._subscription.lock:
                for state in [self._subscription.state(each) for each in _partitions(partitions)]:
                    state.is_paused = paused

    def paused(self) -> frozenset[TopicPartition]:
        with self._one_thread:
            return frozenset(state.topic_partition for state in self._subscription.states() if state.is_paused)

    # Offsets of the cluster

    def beginning_offsets(self, partitions: Partitions, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        return self._ends(partitions, EARLIEST, timeout_s)

    def end_offsets(self, partitions: Partitions, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """The offsets after the last records that this consumer may read."""
        return self._ends(partitions, LATEST, timeout_s)

    def _ends(self, partitions: Partitions, target: int, timeout_s: float | None) -> dict[TopicPartition, int]:
        with self._one_thread:
            self._settle()
            work = self._read_side.lookup.ask_until_known(dict.fromkeys(_partitions(partitions), target))
            found = self._run(work, timeout_s, "looking up offsets")
            return {each: answer.offset for each, answer in found.items()}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        with self._one_thread:
            self._settle()
            for each, time_ms in times_ms.items():
                if time_ms < 0:
                    raise UserError(f"{each}: time {time_ms} is before 1970; give milliseconds since then")
            targets = {TopicPartition(*each): time_ms for each, time_ms in times_ms.items()}
            found = self._run(self._read_side.lookup.ask_until_known(targets), timeout_s, "looking up offsets")
            return {
                each: OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
                if answer.offset >= 0
                else None
                for each, answer in found.items()
            }

    def lag(self, partition: TopicPartition | tuple[str, int], timeout_s: float | None = None) -> int:
        """How many offsets lie between the position and the end of what may be read."""
        with self._one_thread:
            where = TopicPartition(*partition)
            position = self.position(where, timeout_s)
            committed = self._read_side.settings.text("isolation.level").lower() == "read_committed"
            end = self._subscription.state(where).end_for(committed)
            if end == UNKNOWN or end < position:
                end = self.end_offsets([where], timeout_s)[where]
            return max(end - position, 0)

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionView]:
        with self._one_thread:
            self._settle()
            left = self._api_timeout_s if timeout_s is None else timeout_s
            found = self._run(self._read_side.metadata.topic(topic, left), left + 1.0, "looking up partitions")
            return list(found.partitions)

    def list_topics(self, timeout_s: float | None = None) -> dict[str, TopicView]:
        """Every topic of the cluster that this client may see."""
        with self._one_thread:
            self._settle()
            return self._run(self._read_side.all_topics(), timeout_s, "listing topics")

    # Offsets of the group

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout_s: float | None = None
    ) -> None:
        """Write down how far the group is: these offsets, or the positions; returns when that is safe."""
        with self._one_thread:
            self._settle()
            self._group("commit").commit(_offsets(offsets), self._deadline(timeout_s))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """As `commit`, without waiting; the callback is called inside a later poll, commit or close."""
        with self._one_thread:
            self._settle()
            self._group("commit").commit_async(_offsets(offsets), callback)

    def committed(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        with self._one_thread:
            self._settle()
            return self._group("ask for committed offsets").committed(
                _partitions(partitions), self._deadline(timeout_s)
            )

    def group_metadata(self) -> GroupMetadata:
        """For `Producer.send_offsets_to_transaction`."""
        with self._one_thread:
            self._need_group("have group metadata")
            assert self._membership is not None
            return self._membership.group_metadata()

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group share its partitions anew with the next poll."""
        with self._one_thread:
            self._need_group("rebalance")
            assert self._membership is not None
            self._membership.enforce_rebalance(reason)

    # Life

    def wakeup(self) -> None:
        """From any thread: a call that waits, or the next one that would, raises WakeupError."""
        self._doorbell.wakeup()

    def metrics(self) -> dict[str, float]:
        side = self._read_side
        numbers: dict[str, float] = {
            "records-consumed-total": float(self._intake.records_taken),
            "bytes-consumed-total": float(self._intake.drained),
            "bytes-buffered": float(self._intake.arrived - self._intake.drained),
            "fetch-total": float(side.fetcher.fetches),
        }
        for part in (self._membership, self._commits):
            if part is not None:
                numbers.update(part.metrics())
        return numbers

    def close(self, timeout_s: float | None = None) -> None:
        """Commit if that is automatic, leave the group, close the connections; within so long (30 s by default)."""
        with self._one_thread:
            if self._closed:
                return
            self._intake.settle()
            deadline = time.monotonic() + (_CLOSE_S if timeout_s is None else timeout_s)
            try:
                try:
                    if self._membership is not None:
                        self._membership.close(deadline)
                finally:
                    if self._commits is not None:
                        self._commits.close(deadline)
            finally:
                self._closed = True
                self._read_side.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Small things

    def _settle(self) -> None:
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        self._intake.settle()

    def _deadline(self, timeout_s: float | None) -> float:
        return time.monotonic() + (self._api_timeout_s if timeout_s is None else timeout_s)

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float | None, what: str) -> T:
        return self._doorbell.run(self._read_side.engine, work, self._deadline(timeout_s), what)

    def _need_group(self, what: str) -> None:
        if self._membership is None:
            raise UserError(
                f"this consumer has no group, so it cannot {what}; give it group_id, or assign() partitions"
            )

    def _group(self, what: str) -> Commits:
        self._need_group(what)
        assert self._commits is not None
        return self._commits


def _partitions(given: Partitions) -> list[TopicPartition]:
    partitions = [TopicPartition(*each) for each in given]
    for each in partitions:
        if not isinstance(each.topic, str) or not each.topic.strip() or each.partition < 0:
            raise UserError(f"{tuple(each)} is no partition; give TopicPartition(topic, number)")
    return partitions


def _offsets(
    given: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if given is None:
        return None
    offsets = {
        TopicPartition(*each): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for each, offset in given.items()
    }
    for each, offset in offsets.items():
        if offset.offset < 0:
            raise UserError(f"{each}: offset {offset.offset} cannot be committed; offsets start at 0")
    return offsets
