"""The Consumer: what programs call, from one thread at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack
from weakref import ref

from braidlog.client.arguments import ByPartition, Many, Partitions, by_partition, listed, partition_of, partitions_of
from braidlog.client.cluster_view import PartitionView, TopicView
from braidlog.client.consumer.consumer_network import ConsumerNetwork
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer, RecordIterator
from braidlog.client.consumer.lifetime import ConsumerLifetime, OneThread
from braidlog.client.consumer.offsets.auto_offset_reset import EARLIEST, LATEST
from braidlog.client.consumer.offsets.offset_and_metadata import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from braidlog.client.consumer.partition_state import UNKNOWN
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.consumer.subscription_state import SubscriptionKind
from braidlog.client.errors import ClosedError, RequestTimeout, WakeupError
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from braidlog.client.consumer.group.membership import Membership
    from braidlog.client.consumer.offsets.commits import Commits
    from braidlog.client.typed_settings import ConsumerSettings

T = TypeVar("T")
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]

_CLOSE_S: Final = 30.0
_FOR_EVER_S: Final = 1e9


class Consumer:
    """Reads records, by itself or sharing the partitions of topics with its group.

        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="shop") as consumer:
            for record in consumer:
                print(record.partition, record.offset, record.value)

    Topics that are given here are subscribed to; `subscribe` and `assign` choose later. Settings are Kafka's, in snake
    case or as a mapping with dotted names.

    Belongs to one thread at a time; only `wakeup` may come from another.
    """

    def __init__(
        self, first: Mapping[str, Any] | str | None = None, /, *topics: str, **settings: Unpack[ConsumerSettings]
    ) -> None:
        if first is not None and not isinstance(first, Mapping):
            topics = (first, *topics)
            first = None
        _check_topics(topics)
        self._one_thread = OneThread("consumer")
        self._closed = False
        self._network = network = ConsumerNetwork(first, settings)
        self._settings = network.settings
        self._clock = network.clock
        self._subscription = network.subscription
        # What was fetched and not yet returned.
        self._fetch_buffer = network.fetch_buffer
        self._wakeup = network.wakeup
        self._membership = network.membership
        self._commits = network.commits
        self._most = self._settings.number("max.poll.records")
        self._api_timeout_s = self._settings.seconds("default.api.timeout.ms")
        self._lifetime = ConsumerLifetime(self, network, self._on_fork)
        self._listener: RebalanceListener | None = None
        if topics:
            self.subscribe(topics[0] if len(topics) == 1 else topics)

    def __repr__(self) -> str:
        settings = self._settings
        servers = ",".join(map(str, settings.items("bootstrap.servers")))
        group = settings.optional_text("group.id")
        return f"<Consumer of {servers}{f', group {group}' if group else ''}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a Consumer cannot be copied or pickled; make one where it is used")

    # What to read

    def subscribe(
        self,
        topics: Many[str] | str | re.Pattern[str],
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share the partitions of these topics, or of all that match a pattern, with the group; replaces the last call.

        A plain string is one topic; one that starts with `^` is a pattern, as `re.compile(...)` is. No topics at all
        unsubscribes. A consumer without a group reads all of their partitions.
        """
        with self._one_thread:
            self._begin_call()
            own_listener = _WeakListener(self)
            if isinstance(topics, str):
                topics = re.compile(topics) if topics.startswith("^") else [topics]
            if isinstance(topics, re.Pattern):
                self._subscription.subscribe_pattern(topics, self._network.metadata.view.topics, own_listener)
                self._listener = listener
                return
            names = listed(topics, "topics")
            for name in names:
                if not isinstance(name, str) or not name.strip():
                    raise UserError(f"{name!r} is no topic; give names, or a pattern")
            if not names:
                self.unsubscribe()
                return
            self._subscription.subscribe(names, own_listener)
            self._listener = listener

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, whatever others do; needs no group."""
        with self._one_thread:
            self._begin_call()
            wanted = partitions_of(partitions)
            if not wanted:
                self.unsubscribe()
                return
            if self._subscription.kind is SubscriptionKind.MANUAL and self._commits is not None:
                self._commits.begin_auto_commit_of_all()
            self._subscription.assign(wanted)
            self._network.fetcher.schedule()

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        with self._one_thread:
            self._begin_call()
            if self._membership is not None and self._subscription.is_auto:
                self._membership.leave(self._deadline(None))
            self._subscription.unsubscribe()
            self._listener = None

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a pattern those that match now."""
        with self._one_thread:
            return self._subscription.topics if self._subscription.is_auto else frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        with self._one_thread:
            return self._subscription.assigned()

    def _current_subscription(self) -> tuple[frozenset[str] | re.Pattern[str], RebalanceListener | None]:
        """Topics or a pattern (no topics where partitions were assigned by hand), and the listener."""
        before = self._subscription
        return before.pattern or before.topics if before.is_auto else frozenset(), self._listener

    # Records

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records, waiting so long for the first; at most `max.poll.records`. Positions move past what is returned."""
        with self._one_thread:
            most = self._most if max_records is None else max_records
            if most < 1:
                raise UserError(f"max_records={most}: ask for at least one")
            fetch_buffer = self._fetch_buffer
            if self._poll(lambda: fetch_buffer.refill(most) or None, timeout) is None:
                return []
            return fetch_buffer.take(most)

    def wait(self, timeout: float) -> bool:
        """Whether records are there within so long; a poll then returns them at once."""
        with self._one_thread:
            return self._poll(self._refill, timeout) is not None

    def poll_one(self, timeout: float = 0.0) -> ConsumerRecord | None:
        """The next record, or None after so long."""
        record = self._fetch_buffer.pop()
        if record is None and self.wait(timeout):
            record = self._fetch_buffer.pop()
        return record

    def poll_arrow(
        self,
        timeout: float = 0.0,
        max_records: int | None = None,
        columns: Many[str] | None = None,
        *,
        timestamp_unit: Literal["ms", "us"] = "ms",
        bytes_layout: Literal["binary", "large_binary", "binary_view"] = "binary",
    ) -> pyarrow.Table:
        """As `poll`, with whole batches as one Arrow table: no object for each record (docs/client/arrow.md)."""
        from braidlog.client.arrow.consuming import poll_arrow

        return poll_arrow(self, timeout, max_records, columns, timestamp_unit=timestamp_unit, bytes_layout=bytes_layout)

    def __iter__(self) -> RecordIterator:
        return RecordIterator(self._fetch_buffer, self._await_next)

    def _await_next(self) -> bool:
        """For the iterator: False when the consumer was closed."""
        return not self._closed and self.wait(_FOR_EVER_S)

    def _refill(self) -> bool | None:
        return self._fetch_buffer.refill(self._most) or None

    def _poll_fetches(self, take: Callable[[FetchBuffer], T | None], timeout: float) -> T | None:
        """A poll for callers that take whole fetches instead of records, as `poll_arrow` does."""
        fetch_buffer = self._fetch_buffer
        with self._one_thread:
            return self._poll(lambda: take(fetch_buffer), timeout)

    def _poll(self, take: Callable[[], T | None], timeout: float) -> T | None:
        self._begin_call()
        return self._network.poll(take, self._clock.monotonic() + timeout)

    # Positions

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        with self._one_thread:
            self._begin_call()
            epoch = -1
            if isinstance(offset, OffsetAndMetadata):
                offset, _, epoch = offset
            if offset < 0:
                raise UserError(f"offset {offset} does not exist; seek_to_beginning() and seek_to_end() find the ends")
            self._subscription.seek(partition_of(partition), offset, epoch)
            self._network.fetcher.schedule()

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Read from the start of these partitions (all that are assigned, unless some are named)."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Read only what comes from now on."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Partitions, target: int) -> None:
        with self._one_thread:
            self._begin_call()
            self._subscription.request_reset(partitions_of(partitions) or self._subscription.assignment(), target)
            self._network.fetcher.schedule()

    def position(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """The offset of the next record that poll returns; waits until it is known."""
        with self._one_thread:
            self._begin_call()
            where = partition_of(partition)
            state = self._subscription.state(where)
            deadline = self._deadline(timeout)
            self._network.fetcher.schedule()
            if not self._network.wait_until(state.has_position, deadline):
                raise RequestTimeout(f"where to read {where} is not known yet; see whether its leader answers")
            return int(state.position)

    def pause(self, partitions: Partitions) -> None:
        """Let poll return nothing of these until `resume`; they stay assigned."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Partitions) -> None:
        """Let poll return records of these again."""
        self._set_paused(partitions, False)
        self._network.fetcher.schedule()

    def _set_paused(self, partitions: Partitions, paused: bool) -> None:
        with self._one_thread:
            self._begin_call()
            self._subscription.set_paused(partitions_of(partitions), paused)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        with self._one_thread:
            return self._subscription.paused()

    # Offsets of the cluster

    def beginning_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return self._ends(partitions, EARLIEST, timeout)

    def end_offsets(self, partitions: Partitions, timeout: float | None = None) -> dict[TopicPartition, int]:
        """The offsets after the last records that this consumer may read."""
        return self._ends(partitions, LATEST, timeout)

    def _ends(self, partitions: Partitions, target: int, timeout: float | None) -> dict[TopicPartition, int]:
        with self._one_thread:
            self._begin_call()
            work = self._network.lookup.ask_with_retries(dict.fromkeys(partitions_of(partitions), target))
            found = self._run(work, timeout, "looking up offsets")
            return {each: answer.offset for each, answer in found.items()}

    def offsets_for_times(
        self, times_ms: ByPartition[int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        with self._one_thread:
            self._begin_call()
            targets = by_partition(times_ms, "times_ms", '{TopicPartition("orders", 0): 1700000000000}')
            for each, time_ms in targets.items():
                if time_ms < 0:
                    raise UserError(f"{each}: time {time_ms} is before 1970; give milliseconds since then")
            found = self._run(self._network.lookup.ask_with_retries(targets), timeout, "looking up offsets")
            return {
                each: OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
                if answer.offset >= 0
                else None
                for each, answer in found.items()
            }

    def lag(self, partition: TopicPartition | tuple[str, int], timeout: float | None = None) -> int:
        """How many offsets lie between the position and the end of what may be read."""
        with self._one_thread:
            where = partition_of(partition)
            position = self.position(where, timeout)
            read_committed = bool(self._settings.isolation_level())
            end = self._subscription.state(where).end_for(read_committed)
            if end == UNKNOWN or end < position:
                end = self.end_offsets([where], timeout)[where]
            return max(end - position, 0)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionView]:
        """The topic's partitions (`index`, `leader`, `replicas`, `isr`)."""
        with self._one_thread:
            self._begin_call()
            left = self._api_timeout_s if timeout is None else timeout
            found = self._run(self._network.metadata.topic(topic, left), left + 1.0, "looking up partitions")
            return list(found.partitions)

    def list_topics(self, timeout: float | None = None) -> dict[str, TopicView]:
        """Every topic of the cluster that this client may see."""
        with self._one_thread:
            self._begin_call()
            return self._run(self._network.all_topics(), timeout, "listing topics")

    # Offsets of the group

    def commit(self, offsets: ByPartition[OffsetAndMetadata | int] | None = None, timeout: float | None = None) -> None:
        """Write down how far the group is: these offsets, or the positions; returns when that is safe."""
        with self._one_thread:
            self._begin_call()
            self._need_commits("commit").commit(_offsets(offsets), self._deadline(timeout))

    def commit_async(
        self,
        offsets: ByPartition[OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """As `commit`, without waiting; the callback is called inside a later poll, commit or close."""
        with self._one_thread:
            self._begin_call()
            self._need_commits("commit").commit_async(_offsets(offsets), callback)

    def committed(
        self, partitions: Partitions, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """By partition what the group has committed; None where that is nothing."""
        with self._one_thread:
            self._begin_call()
            return self._need_commits("ask for committed offsets").committed(
                partitions_of(partitions), self._deadline(timeout)
            )

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `Producer.send_offsets_to_transaction`."""
        with self._one_thread:
            return self._need_membership("have group metadata").group_metadata()

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group rebalance with the next poll."""
        with self._one_thread:
            self._need_membership("rebalance").enforce_rebalance(reason)

    # Life

    def _begin_call(self) -> None:
        """Before anything that looks at positions or changes them."""
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        self._fetch_buffer.update_position()

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._api_timeout_s if timeout is None else timeout)

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None, what: str) -> T:
        return self._wakeup.run(self._network.engine, work, self._deadline(timeout), what)

    def _need_membership(self, what: str) -> Membership:
        if self._membership is None:
            raise UserError(f"this consumer has no group and cannot {what}; give it group_id")
        return self._membership

    def _need_commits(self, what: str) -> Commits:
        self._need_membership(what)
        assert self._commits is not None
        return self._commits

    def wakeup(self) -> None:
        """From any thread: a call that waits, or the next one that would, raises WakeupError."""
        self._wakeup.wakeup()

    def _ignore_wakeup(self) -> None:
        """Forget a wakeup that has not ended a call yet."""
        with suppress(WakeupError):
            self._wakeup.check()

    def metrics(self) -> dict[str, float]:
        """Counts since the start, and how far it is behind."""
        numbers: dict[str, float] = {
            "records-consumed-total": float(self._fetch_buffer.records_taken),
            "bytes-consumed-total": float(self._fetch_buffer.drained),
            "bytes-buffered": float(self._fetch_buffer.arrived - self._fetch_buffer.drained),
            "fetch-total": float(self._network.fetcher.fetches),
            "records-lag-max": float(max((each.known_lag() for each in self._subscription.states()), default=0)),
        }
        for part in (self._membership, self._commits):
            if part is not None:
                numbers.update(part.metrics())
        return numbers

    def close(self, timeout: float | None = None) -> None:
        """Commit if that is automatic, leave the group, close the connections; within so long (30 s by default)."""
        if self._one_thread.is_forked:
            return
        with self._one_thread:
            if self._closed:
                return
            self._lifetime.end()
            self._fetch_buffer.update_position()
            deadline = self._clock.monotonic() + (_CLOSE_S if timeout is None else timeout)
            try:
                try:
                    if self._membership is not None:
                        self._membership.close(deadline)
                finally:
                    if self._commits is not None:
                        self._commits.close(deadline)
            finally:
                self._closed = True
                self._network.close()

    def _on_fork(self) -> None:
        """In the child of a fork: the membership is the parent's, and so is what was fetched."""
        self._one_thread.mark_forked()
        self._fetch_buffer.discard()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _WeakListener(RebalanceListener):
    """The program's listener, as the group's side calls it.

    A listener often refers to the consumer, and the engine's thread refers to the subscription. If that held the
    listener itself, a consumer that the program no longer refers to would never be collected.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = ref(consumer)

    def _call(self, name: str, partitions: list[TopicPartition], otherwise: str = "") -> None:
        consumer = self._consumer()
        listener = None if consumer is None else consumer._listener
        callback = getattr(listener, name, None) or getattr(listener, otherwise, None)
        if callback is not None:
            callback(partitions)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._call("on_partitions_assigned", partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._call("on_partitions_revoked", partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._call("on_partitions_lost", partitions, "on_partitions_revoked")


def _check_topics(topics: Sequence[object]) -> None:
    """Before anything is made: what stands first may be meant as something else."""
    for each in topics:
        if not isinstance(each, str):
            raise UserError(
                f"{each!r} is no topic; write Consumer('orders', 'payments', bootstrap_servers='HOST:PORT')"
            )
        if ":" in each and not each.startswith("^"):
            raise UserError(f"{each!r} is no topic; is it the broker's address? Write bootstrap_servers={each!r}")


def _offsets(
    given: ByPartition[OffsetAndMetadata | int] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if given is None:
        return None
    return {
        each: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for each, offset in by_partition(given, "offsets", '{TopicPartition("orders", 0): 42}').items()
    }
