"""The consumer behind `braidlog consume`: reads to an end, or on and on, and commits what was printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from braidlog.cli.interrupts import interrupts_wait
from braidlog.cli.output import remark
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.offsets import OffsetAndMetadata
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import ClientError, CommitFailedError, NoOffsetError
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError, RebalanceInProgressError
from braidlog.core.types import TopicPartition

Emit = Callable[[list[ConsumerRecord]], None]

_LONGEST_WAIT_S: Final = 0.5
# Enough for the output to be written in large pieces.
_AT_ONCE: Final = 5000
_COMMIT_EVERY_S: Final = 5.0
_LAG_S: Final = 1.0


class RecordReader:
    """Until one of three: the end reached (of the log or of a range), so many records, or none for so long."""

    def __init__(
        self,
        consumer: Consumer,
        emit: Emit,
        *,
        until_end: bool = False,
        most: int | None = None,
        idle_s: float | None = None,
        commits: bool = False,
        waiting: Callable[[Consumer], None] | None = None,
    ) -> None:
        self._consumer = consumer
        self._emit = emit
        self._until_end = until_end
        self._left = most
        self._idle_s = idle_s
        self._commits = commits
        # Called once, if everything is read before the first record was.
        self._waiting = waiting
        # Where a range ends, which the log may not have reached yet.
        self._stops: dict[TopicPartition, int] = {}
        # Of the partitions that were assigned so far: where reading ends.
        self._ends: dict[TopicPartition, int] = {}
        self._ended: set[TopicPartition] = set()
        # What was printed and is not committed: the next offset of each partition.
        self._printed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._next_commit = time.monotonic() + _COMMIT_EVERY_S

    def stop_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read each partition up to, and not including, its offset."""
        self._stops = dict(offsets)

    def run(self) -> None:
        heard = time.monotonic()
        while not ((self._until_end or self._stops) and self._is_at_end()):
            left = _LONGEST_WAIT_S if self._idle_s is None else heard + self._idle_s - time.monotonic()
            if left <= 0:
                return
            records = self._poll(min(left, _LONGEST_WAIT_S))
            if records:
                # What was printed is counted and committed, also where somebody sees it and interrupts at once.
                with interrupts_wait():
                    self._print(records)
                self._waiting = None
                heard = time.monotonic()
                if self._left == 0:
                    return
            elif self._waiting is not None:
                self._say_waiting(self._waiting)
            if self._commits and time.monotonic() >= self._next_commit:
                self.commit()

    def _poll(self, timeout_s: float) -> list[ConsumerRecord]:
        most = _AT_ONCE if self._left is None else min(self._left, _AT_ONCE)
        try:
            records = self._consumer.poll(timeout_s, max_records=most)
        except NoOffsetError as problem:
            self._jump(problem)
            return []
        if self._ends and records:
            ends = {partition: end for (_, partition), end in self._ends.items()}
            # Not known: given to us within this very poll, and far from its end.
            return [each for each in records if each.offset < ends.get(each.partition, each.offset + 1)]
        return records

    def _print(self, records: list[ConsumerRecord]) -> None:
        self._emit(records)
        if self._left is not None:
            self._left -= len(records)
        if self._commits:
            last = {record.partition: record for record in records}
            for record in last.values():
                self._printed[record.topic_partition] = OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)

    def _jump(self, problem: NoOffsetError) -> None:
        """The log no longer, or not yet, has our position; only the first is nobody's mistake."""
        where = problem.partition
        if where is None or problem.offset < 0:
            raise problem
        start = self._consumer.beginning_offsets([where])[where]
        if problem.offset >= start:
            raise self._future(where, problem.offset, self._consumer.end_offsets([where])[where]) from problem
        remark(f"{where} starts at offset {start} by now; going on there instead of {problem.offset}")
        self._consumer.seek(where, start)

    @staticmethod
    def _future(where: TopicPartition, offset: int, end: int) -> UserError:
        return UserError(
            f"{where} ends at offset {end} and has no offset {offset} yet; use --offset latest to wait for what comes, "
            "--offset -N for the last N records, or --partition for those partitions that have it"
        )

    def _is_at_end(self) -> bool:
        """Whether every partition is read up to its end: what that was when it was assigned, or the range's."""
        consumer = self._consumer
        assigned = consumer.assignment()
        fresh = [each for each in sorted(assigned) if each not in self._ends]
        if fresh:
            self._ends |= self._ends_of(fresh)
        for each in sorted(assigned - self._ended):
            if self._position(each) >= self._ends[each]:
                self._ended.add(each)
                consumer.pause([each])
        return bool(assigned) and assigned <= self._ended

    def _ends_of(self, fresh: list[TopicPartition]) -> dict[TopicPartition, int]:
        stops = {each: self._stops[each] for each in fresh if each in self._stops}
        logs = self._consumer.end_offsets(fresh)
        if not self._commits:
            # Nothing would ever find out: a partition that has ended is not fetched.
            for each in fresh:
                position = self._position(each)
                if position > logs[each] and (each not in stops or position < stops[each]):
                    raise self._future(each, position, logs[each])
        if not self._until_end:
            return stops
        return {each: min(end, stops.get(each, end)) for each, end in logs.items()}

    def _say_waiting(self, say: Callable[[Consumer], None]) -> None:
        """If all there is has been read; who cannot be asked about that now is asked again after the next poll."""
        assigned = self._consumer.assignment()
        with suppress(ClientError, ProtocolError):
            if assigned and all(self._consumer.lag(each, _LAG_S) == 0 for each in assigned - self._ended):
                say(self._consumer)
                self._waiting = None

    def _position(self, partition: TopicPartition) -> int:
        try:
            return self._consumer.position(partition)
        except NoOffsetError as problem:
            self._jump(problem)
            return -1

    def commit(self) -> None:
        """Tell the group how much was printed; what others own by now is theirs to tell."""
        self._next_commit = time.monotonic() + _COMMIT_EVERY_S
        assigned = self._consumer.assignment()
        offsets = {each: offset for each, offset in self._printed.items() if each in assigned}
        if offsets:
            try:
                self._consumer.commit(offsets)
            except RebalanceInProgressError:
                # What is still ours when the group has settled is committed then.
                return
            except CommitFailedError as problem:
                remark(f"not committed, so another member may print them again: {problem}")
        self._printed = {}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They went to another member."""
        for each in partitions:
            self._ended.discard(each)
            self._ends.pop(each, None)
