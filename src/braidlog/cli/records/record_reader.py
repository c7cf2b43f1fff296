"""The consumer behind `braidlog consume`: reads to an end, or on and on, and commits what was printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from braidlog.cli.interrupts import interrupts_wait
from braidlog.cli.output import remark
from braidlog.cli.records.record_text import RecordText, Rows
from braidlog.cli.records.schema_decoding import DecodingStopped, RecordDecoding, UndecodableField
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.errors import ClientError, CommitFailedError, NoOffsetError
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError, RebalanceInProgressError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.varint import INT64_MAX


class Chunk(NamedTuple):
    """Records of one partition that are printed together: all of them or, after an interrupt, none."""

    partition: TopicPartition
    records: int
    text: bytes
    # What is committed once they are printed.
    next_offset: int
    leader_epoch: int
    # Why there is nothing to print any more.
    problem: DecodingStopped | None = None


class ChunkSource(Protocol):
    def poll(self, timeout_s: float, most: int, ends: Mapping[TopicPartition, int]) -> list[Chunk]:
        """So many records at most, and none from the ends on, of what comes first within so long."""
        ...


class SliceSource:
    """Whole fetched slices as text; no object is made for a record."""

    def __init__(
        self,
        consumer: Consumer,
        text_of: Callable[[str, int], RecordText],
        decoding: RecordDecoding | None = None,
    ) -> None:
        self._consumer = consumer
        self._text_of = text_of
        self._decoding = decoding
        self._texts: dict[TopicPartition, RecordText] = {}

    def poll(self, timeout_s: float, most: int, ends: Mapping[TopicPartition, int]) -> list[Chunk]:
        return self._consumer._poll_fetches(lambda fetch_buffer: self._take(fetch_buffer, most, ends), timeout_s) or []

    def _take(self, fetch_buffer: FetchBuffer, most: int, ends: Mapping[TopicPartition, int]) -> list[Chunk] | None:
        while True:
            fetched = fetch_buffer.take_fetch()
            if fetched is None:
                return None
            where = fetched.state.topic_partition
            text = self._texts.get(where)
            if text is None:
                text = self._texts[where] = self._text_of(*where)
            reader = fetched.column_reader(until=ends.get(where, INT64_MAX), full=_SLICE_BYTES)
            columns = text.columns()
            count = fetched.read_columns(reader, columns, most)
            epoch = columns.leader_epoch_runs[-1][0] if count else -1
            fetch_buffer.advance_fetch(fetched, reader.position, epoch, reader.is_done, count)
            if count or ends:
                # Also nothing: the end may have been reached.
                if self._decoding is not None:
                    return _decoded_chunks(self._decoding, where, text, Rows(columns), count, reader.position, epoch)
                return _chunks(where, text, Rows(columns), count, reader.position, epoch)


def _chunks(where: TopicPartition, text: RecordText, rows: Rows, count: int, position: int, epoch: int) -> list[Chunk]:
    chunks = []
    for first in range(0, count, _TOGETHER):
        end = min(first + _TOGETHER, count)
        after = position if end == count else rows.offset(end)
        chunks.append(Chunk(where, end - first, text.render(rows, first, end), after, epoch))
    return chunks


def _decoded_chunks(
    decoding: RecordDecoding,
    where: TopicPartition,
    text: RecordText,
    rows: Rows,
    count: int,
    position: int,
    epoch: int,
) -> list[Chunk]:
    """Record by record: one that cannot be decoded is left out, or the last."""
    chunks = []
    for row in range(count):
        offset = rows.offset(row)
        after = position if row + 1 == count else rows.offset(row + 1)
        try:
            chunks.append(Chunk(where, 1, text.render(rows, row, row + 1), after, epoch))
        except UndecodableField as field:
            problem = decoding.stopped_at(where, offset, field)
            if problem is None:
                chunks.append(Chunk(where, 0, b"", after, epoch))
                continue
            return [*chunks, Chunk(where, 0, b"", offset, epoch, problem)]
        except UserError as trouble:
            # The registry is away: the same records can be decoded when it is back.
            return [*chunks, Chunk(where, 0, b"", offset, epoch, DecodingStopped(str(trouble)))]
    return chunks


_LONGEST_WAIT_S: Final = 0.5
# Enough for the output to be written in large pieces, few enough to be written soon where the reader is slow.
_TOGETHER: Final = 2000
# What a slice may unfold to before it is printed: with a good codec, far more than was fetched.
_SLICE_BYTES: Final = 4 << 20
_COMMIT_EVERY_S: Final = 5.0
_LAG_S: Final = 1.0


class RecordReader:
    """Until one of three: the end reached (of the log or of a range), so many records, or none for so long."""

    def __init__(
        self,
        consumer: Consumer,
        source: ChunkSource,
        emit: Callable[[Chunk], None],
        *,
        until_end: bool = False,
        most: int | None = None,
        idle_s: float | None = None,
        commits: bool = False,
        waiting: Callable[[Consumer], None] | None = None,
    ) -> None:
        self._consumer = consumer
        self._source = source
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
            chunks = self._poll(min(left, _LONGEST_WAIT_S))
            if chunks:
                for chunk in chunks:
                    # What was printed is counted and committed, also when an interrupt follows at once.
                    with interrupts_wait():
                        self._print(chunk)
                    if chunk.problem is not None:
                        raise chunk.problem
                self._waiting = None
                heard = time.monotonic()
                if self._left == 0:
                    return
            elif self._waiting is not None:
                self._say_waiting(self._waiting)
            if self._commits and time.monotonic() >= self._next_commit:
                self.commit()

    def _poll(self, timeout_s: float) -> list[Chunk]:
        most = INT64_MAX if self._left is None else self._left
        try:
            return self._source.poll(timeout_s, most, self._ends)
        except NoOffsetError as problem:
            self._jump(problem)
            return []

    def _print(self, chunk: Chunk) -> None:
        self._emit(chunk)
        if self._left is not None:
            self._left -= chunk.records
        if self._commits:
            self._printed[chunk.partition] = OffsetAndMetadata(chunk.next_offset, "", chunk.leader_epoch)

    def _jump(self, problem: NoOffsetError) -> None:
        """The log no longer, or not yet, has our position; only the second is a mistake."""
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
            # When they come back, others may have gone on from there.
            self._printed.pop(each, None)
