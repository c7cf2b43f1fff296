"""What one fetch brought of one partition, turned into records as they are asked for (hot: compiled by mypyc).

Batches stay as they came, and compressed, until a program's thread asks for their records.
"""

from __future__ import annotations

from typing import NamedTuple

from librt.strings import read_i32_be
from mypy_extensions import i32, i64

from braidlog.client.consumer.fetch.batch_reader import BatchReader
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import PoisonRecordError
from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError, ProtocolError
from braidlog.wire.records.batch import (
    CONTROL,
    CREATE_TIME,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    read_header,
)
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.columns_slice import FULL, SliceReader
from braidlog.wire.records.control_records import ABORT, control_type
from braidlog.wire.records.reading import read_batch
from braidlog.wire.records.varint import INT64_MAX


class AbortedRange(NamedTuple):
    """A producer's records from `first_offset` up to its abort marker were aborted."""

    producer_id: int
    first_offset: int


def end_of_batches(data: bytes, start: int, end: int, position: int) -> int:
    """The offset after the last whole batch of `data[start:end]`; `position` when there is none."""
    at: i64 = start
    stop: i64 = end
    last: i64 = -1
    while stop - at >= LOG_OVERHEAD:
        size: i64 = i64(read_i32_be(data, at + LENGTH_AT)) + LOG_OVERHEAD
        if size < LOG_OVERHEAD or size > stop - at:
            break
        last = at
        at += size
    if last < 0:
        return position
    try:
        return max(position, read_header(data, int(last), end).next_offset)
    except CorruptMessageError:
        # Reading its records raises; fetching stops here until then.
        return position


class CompletedFetch:
    """Whole batches `data[start:end]` of one partition, read from `position` on.

    `position` moves with `read`: it is the offset of the next record, also past records that are not shown.
    """

    __slots__ = (
        "_batch",
        "_coming_aborts",
        "_next_offset",
        "_open_aborts",
        "aborted",
        "batch_at",
        "check_crcs",
        "data",
        "end",
        "is_used_up",
        "position",
        "position_epoch",
        "problem",
        "start",
        "state",
        "version",
    )

    def __init__(
        self,
        state: PartitionState,
        data: bytes,
        start: int,
        end: int,
        position: int,
        aborted: list[AbortedRange],
        check_crcs: bool = True,
    ) -> None:
        self.state = state
        # Data of before a seek does not count.
        self.version: i64 = state.version
        self.data = data
        self.start = start
        self.end: i64 = end
        self.position: i64 = position
        # Leader epoch of the last record that was read, -1 before the first.
        self.position_epoch: i64 = -1
        self.aborted = aborted
        self.is_used_up: bool = False
        # Why reading cannot go on; found again, and raised again, for as long as the program does not seek.
        self.problem: PoisonRecordError | None = None
        # Where the next batch starts.
        self.batch_at: i64 = start
        self.check_crcs = check_crcs
        self._coming_aborts: list[AbortedRange] = sorted(aborted, key=_first_offset, reverse=True)
        self._open_aborts: set[int] = set()
        self._batch = BatchReader(state)
        # After the batch that is being looked at.
        self._next_offset: i64 = position

    @property
    def size(self) -> int:
        return int(self.end) - self.start

    def read(self, into: list[ConsumerRecord], most: i64) -> None:
        """Append up to so many records; `is_used_up` when there are no more.

        Raises PoisonRecordError, unless records before the broken one could be appended.
        """
        if self.problem is not None:
            raise self.take_problem()
        batch = self._batch
        before: i64 = len(into)
        wanted: i64 = before + most
        try:
            while True:
                have: i64 = len(into)
                if have >= wanted:
                    break
                if batch.left > 0:
                    try:
                        batch.read(into, wanted - have)
                    finally:
                        self.position = batch.position
                        self.position_epoch = i64(batch.epoch)
                elif not self._begin_batch(into):
                    self.is_used_up = True
                    return
            if batch.left == 0 and self.end - self.batch_at < LOG_OVERHEAD:
                self.is_used_up = True
        except ProtocolError as problem:
            after = self._next_offset
            poison = self.poisoned(problem, int(self.position), int(after if after > self.position else -1))
            self.problem = poison
            if i64(len(into)) == before:
                raise self.take_problem() from problem

    def take_problem(self) -> PoisonRecordError:
        """To be raised, and not kept: with its traceback it has the consumer, which then could not be collected."""
        problem = self.problem
        assert problem is not None
        self.rewind(int(self.position))
        return problem

    def poisoned(self, problem: ProtocolError, position: int, resume_at: int = -1) -> PoisonRecordError:
        """That reading cannot go on at `position`, and where it may (by default with the next offset)."""
        resume_at = resume_at if resume_at > position else position + 1
        partition = self.state.topic_partition
        return PoisonRecordError(
            f"{partition} cannot be read at offset {position}: {problem}; seek past it and read on at offset "
            f"{resume_at}, the next that may be whole, or have the partition repaired",
            partition,
            position,
            resume_at,
        )

    def unreadable(self) -> PoisonRecordError:
        """Why there is no whole batch: the bytes are damaged, or the batch is larger than was asked for."""
        try:
            self.read([], 1)
        except PoisonRecordError as problem:
            return problem
        offset = int(self.position)
        partition = self.state.topic_partition
        return PoisonRecordError(
            f"{partition} at offset {offset}: the batch there is larger than the {self.size} bytes that were asked "
            "for; raise fetch.max.bytes and max.partition.fetch.bytes, or seek past it",
            partition,
            offset,
            offset + 1,
        )

    # Columns instead of records

    def column_reader(self, *, until: int = INT64_MAX, full: int = FULL) -> SliceReader:
        """Reads on at `position`, for `read_columns`; `position` itself stays where it is."""
        if self.problem is not None:
            raise self.take_problem()
        # From its start, also when some of it was read: which transactions were aborted is found on the way.
        return SliceReader(
            self.data, self.start, int(self.end), int(self.position), aborted=self.aborted, until=until, full=full
        )

    def read_columns(self, reader: SliceReader, columns: RecordColumns, most: int) -> int:
        """Add up to `most` records; returns how many. Raises PoisonRecordError where none came before the damage."""
        try:
            return reader.read_into(columns, most, check=self.check_crcs)
        except ProtocolError as problem:
            raise self.poisoned(problem, reader.position, reader.resume_at) from problem

    # Batch by batch

    def _begin_batch(self, into: list[ConsumerRecord]) -> bool:
        """Go to the next batch that may be seen; False after the last. Old messages are appended at once."""
        data = self.data
        while self.end - self.batch_at >= LOG_OVERHEAD:
            at = self.batch_at
            size: i64 = i64(read_i32_be(data, at + LENGTH_AT)) + LOG_OVERHEAD
            if size > self.end - at:
                return False
            self._next_offset = self.position
            header = read_header(data, int(at), int(self.end))
            next_offset: i64 = header.next_offset
            self._next_offset = next_offset
            if self.check_crcs:
                check_crc(data, header)
            # Also of batches before the position: what they say of transactions counts after it.
            if not self._is_visible(header) or next_offset <= self.position or header.count == 0:
                self._pass(header, size)
                continue
            if header.magic < 2:
                self._read_old(header, into)
                self._pass(header, size)
                return True
            if header.count < 0:
                raise InvalidRecordError(f"a record batch declares {header.count} records")
            self._batch.open(data, header, self.position)
            self.batch_at = at + size
            return True
        return False

    def _pass(self, header: BatchHeader, size: i64) -> None:
        self.batch_at += size
        next_offset: i64 = header.next_offset
        if next_offset > self.position:
            self.position = next_offset
            self.position_epoch = header.leader_epoch

    def _is_visible(self, header: BatchHeader) -> bool:
        coming = self._coming_aborts
        while coming and coming[-1].first_offset <= header.last_offset:
            self._open_aborts.add(coming.pop().producer_id)
        attributes = header.attributes
        if attributes & CONTROL != 0:
            if self._open_aborts:
                for marker in read_batch(self.data, header, check_crc=False):
                    if control_type(marker) == ABORT:
                        self._open_aborts.discard(header.producer_id)
            return False
        return not (attributes & TRANSACTIONAL != 0 and header.producer_id in self._open_aborts)

    def _read_old(self, header: BatchHeader, into: list[ConsumerRecord]) -> None:
        """Messages of the formats before record batches: rare, so by way of `Record`; all of a wrapper at once."""
        topic = self.state.topic
        partition: i32 = self.state.partition
        kind: i32 = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        if header.magic == 0:
            kind = NO_TIMESTAMP_TYPE
        for each in read_batch(self.data, header, check_crc=False):
            if each.offset >= self.position:
                record = ConsumerRecord(
                    topic, partition, each.offset, each.timestamp, each.key, each.value, each.headers, kind, -1
                )
                into.append(record)

    def rewind(self, offset: int) -> None:
        """Read again from a record that was read before, and find again what is wrong after it."""
        self.problem = None
        self.batch_at = self.start
        self.position = offset
        self.is_used_up = False
        self._coming_aborts = sorted(self.aborted, key=_first_offset, reverse=True)
        self._open_aborts = set()
        self._batch.close()


def _first_offset(aborted: AbortedRange) -> int:
    return aborted.first_offset
