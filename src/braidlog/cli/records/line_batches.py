"""Lines to the records of v2 batches, without an object for each record (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from braidlog.wire.records.batch import HEADER_SIZE
from braidlog.wire.records.columns_building import append_bytes
from braidlog.wire.records.columns_partitioning import StickyRowPartitioner
from braidlog.wire.records.encoding import NO_HEADERS
from braidlog.wire.records.key_hash import murmur2
from braidlog.wire.records.varint import nullable_size, varint_size, write_short_varint

_POSITIVE: Final = 0x7FFFFFFF
_NULL: Final = -1
_NEAR: Final = 32


class LineBatch:
    """Records of one partition: what follows a batch's header. Offset deltas count from 0, timestamps are all equal."""

    __slots__ = ("body", "count", "partition", "payload", "timestamp")

    def __init__(self, partition: int, body: bytes, count: int, payload: int, timestamp: int) -> None:
        self.partition = partition
        self.body = body
        self.count = count
        # Bytes of keys and values.
        self.payload = payload
        self.timestamp = timestamp


class _Open:
    """The batch of a partition that is being filled."""

    __slots__ = ("count", "out", "payload")

    def __init__(self) -> None:
        self.out = BytesWriter()
        self.count: i64 = 0
        self.payload: i64 = 0


class LineBatches:
    """A line is a value, or with a separator a key and a value; what equals `null` is null.

    Lines go to `partition` if that is not -1, else by the hash of their key, else by turns. `headers` are encoded
    already, and end every record.
    """

    def __init__(
        self,
        partitions: int,
        turns: StickyRowPartitioner,
        batch_size: int,
        headers: bytes,
        partition: int = -1,
        key: bytes | None = None,
        key_separator: bytes | None = None,
        null: bytes | None = None,
    ) -> None:
        self._open = [_Open() for _ in range(partitions)]
        self._turns = turns
        self._room: i64 = batch_size - HEADER_SIZE
        self._headers = headers
        self._key: bytes | None = None if key == null else key
        self._separator = key_separator
        self._tombstone = null
        # Of a topic with one partition no key has to be hashed.
        self._partition: i64 = 0 if partitions == 1 else partition
        if self._partition < 0 and self._key is not None:
            self._partition = (murmur2(self._key, 0, len(self._key)) & _POSITIVE) % partitions
        # How many of the last lines were taken: fewer than given where one has no separator.
        self.taken = 0

    def add(self, lines: list[bytes], timestamp: int) -> list[LineBatch]:
        """The batches of these lines, those of a partition in order; ends before a line without its separator."""
        ready: list[LineBatch] = []
        separator = self._separator
        null = self._tombstone
        headers = self._headers
        has_headers = headers != NO_HEADERS
        room: i64 = self._room
        total: i64 = len(self._open)
        skip: i64 = 0
        if separator is not None:
            skip = len(separator)
        taken: i64 = 0
        for line in lines:
            key = self._key
            key_length: i64 = _NULL
            if key is not None:
                key_length = len(key)
            value_at: i64 = 0
            value_length: i64 = len(line)
            if separator is not None:
                key = line
                key_length = _find(line, separator)
                if key_length < 0:
                    break
                value_at = key_length + skip
                value_length -= value_at
                if null is not None and line[:key_length] == null:
                    key_length = _NULL
            if null is not None and value_length == i64(len(null)) and line[value_at:] == null:
                value_length = _NULL
            partition: i64 = self._partition
            if partition < 0:
                if key is not None and key_length >= 0:
                    partition = (murmur2(key, 0, key_length) & _POSITIVE) % total
                else:
                    partition = self._turns.next(value_length)
            batch = self._open[partition]
            # All but the offset's delta; attributes and the timestamp's delta take a byte each.
            fixed: i64 = 2 + nullable_size(key_length) + nullable_size(value_length) + len(headers)
            size: i64 = fixed + varint_size(batch.count)
            if batch.count > 0 and len(batch.out) + varint_size(size) + size > room:
                ready.append(_closed(batch, partition, timestamp))
                size = fixed + 1
            out = batch.out
            write_short_varint(out, size)
            out.append(0)
            out.append(0)
            write_short_varint(out, batch.count)
            write_short_varint(out, key_length)
            if key is not None and key_length > 0:
                append_bytes(out, key, 0, key_length)
                batch.payload += key_length
            write_short_varint(out, value_length)
            if value_length > 0:
                append_bytes(out, line, value_at, value_length)
                batch.payload += value_length
            if has_headers:
                out.write(headers)
            else:
                out.append(0)
            batch.count += 1
            taken += 1
        self.taken = taken
        for number in range(len(self._open)):
            batch = self._open[number]
            if batch.count > 0:
                ready.append(_closed(batch, number, timestamp))
        return ready


def _find(line: bytes, separator: bytes) -> i64:
    """Where the separator is, -1 if nowhere: keys are short, and a call of `find` takes longer than to look."""
    if len(separator) == 1:
        sought: i64 = separator[0]
        at: i64 = 0
        stop: i64 = min(len(line), _NEAR)
        while at < stop:
            if i64(line[at]) == sought:
                return at
            at += 1
    return line.find(separator)


def _closed(batch: _Open, partition: i64, timestamp: int) -> LineBatch:
    closed = LineBatch(partition, batch.out.getvalue(), batch.count, batch.payload, timestamp)
    batch.out = BytesWriter()
    batch.count = 0
    batch.payload = 0
    return closed
