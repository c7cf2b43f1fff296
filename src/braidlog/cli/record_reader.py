"""The consumer behind `braidlog consume`: reads to an end, or on and on, and commits what was printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from braidlog.cli.interrupts import interrupts_wait
from braidlog.cli.output import remark
from braidlog.cli.record_decoding import RecordDecoding
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.offsets import OffsetAndMetadata
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import CommitFailedError, NoOffsetError
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import RebalanceInProgressError
from braidlog.core.types import TopicPartition

Emit = Callable[[list[ConsumerRecord]], None]

_LONGEST_WAIT_S: Final = 0.5
# Enough for the output to be written in large pieces.
_AT_ONCE: Final = 5000
_COMMIT_EVERY_S: Final = 5.0


class RecordReader:
    """Until one of three: `ends` reached (if told to), so many records, or none for so long."""

    def __init__(
        self,
        consumer: Consumer,
        emit: Emit,
        *,
        until_end: bool = False,
        most: int | None = None,
        idle_s: float | None = None,
        commits: bool = False,
        decode: RecordDecoding | None = None,
    ) -> None:
        self._consumer = consumer
        self._emit = emit
        self._until_end = until_end
        self._left = most
        self._idle_s = idle_s
        self._commits = commits
        self._decode = decode
        # Of the partitions that were assigned so far: the end that each had then.
        self._ends: dict[TopicPartition, int] = {}
        self._ended: set[TopicPartition] = set()
        # What was printed and is not committed: the next offset of each partition.
        self._printed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._next_commit = time.monotonic() + _COMMIT_EVERY_S

    def run(self) -> None:
        heard = time.monotonic()
        while not (self._until_end and self._is_at_end()):
            left = _LONGEST_WAIT_S if self._idle_s is None else heard + self._idle_s - time.monotonic()
            if left <= 0:
                return
            records = self._poll(min(left, _LONGEST_WAIT_S))
            if records:
                shown, done, problem = (records, len(records), None) if self._decode is None else self._decode(records)
                # What was printed is counted and committed, also where somebody sees it and interrupts at once.
                with interrupts_wait():
                    self._print(shown, records[:done])
                if problem is not None:
                    raise problem
                heard = time.monotonic()
                if self._left == 0:
                    return
            if self._commits and time.monotonic() >= self._next_commit:
                self.commit()

    def _poll(self, timeout_s: float) -> list[ConsumerRecord]:
        most = _AT_ONCE if self._left is None else min(self._left, _AT_ONCE)
        try:
            records = self._consumer.poll(timeout_s, max_records=most)
        except NoOffsetError as problem:
            self._jump(problem)
            return []
        if self._until_end and records:
            ends = {partition: end for (_, partition), end in self._ends.items()}
            # Not known: given to us within this very poll, and far from its end.
            return [each for each in records if each.offset < ends.get(each.partition, each.offset + 1)]
        return records

    def _print(self, shown: list[ConsumerRecord], done: list[ConsumerRecord]) -> None:
        """Print some, and be done with these and others that lay between them."""
        self._emit(shown)
        if self._left is not None:
            self._left -= len(shown)
        if self._commits:
            last = {record.partition: record for record in done}
            for record in last.values():
                self._printed[record.topic_partition] = OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)

    def _jump(self, problem: NoOffsetError) -> None:
        """The log no longer, or not yet, has our position; only the first is nobody's mistake."""
        where = problem.partition
        if where is None or problem.offset < 0:
            raise problem
        start = self._consumer.beginning_offsets([where])[where]
        if problem.offset >= start:
            raise UserError(
                f"{where} has no offset {problem.offset} yet; use --offset latest to wait for what comes"
            ) from problem
        remark(f"{where} starts at offset {start} by now; going on there instead of {problem.offset}")
        self._consumer.seek(where, start)

    def _is_at_end(self) -> bool:
        """Whether every partition is read up to what was its end when it was assigned."""
        consumer = self._consumer
        assigned = consumer.assignment()
        fresh = [each for each in sorted(assigned) if each not in self._ends]
        if fresh:
            self._ends |= consumer.end_offsets(fresh)
        for each in sorted(assigned - self._ended):
            if self._position(each) >= self._ends[each]:
                self._ended.add(each)
                consumer.pause([each])
        return bool(assigned) and assigned <= self._ended

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
