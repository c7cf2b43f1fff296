"""Rebuilds a shard: replays every record of its partition into it, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, NamedTuple, Protocol

from braidlog.coordinator.shard import CoordinatorShard, ReplayedRecord, UnknownRecordTypeError
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.errors import MalformedError
from braidlog.wire.records.batch import BatchHeader, iterate_headers
from braidlog.wire.records.control_records import ABORT, COMMIT, control_type
from braidlog.wire.records.reading import Record, read_batch

log = logging.getLogger("braidlog.coordinator")

# After so many records the loop serves others.
_RECORDS_AT_A_TIME: Final = 500


class Chunk(NamedTuple):
    """Some whole batches of a partition; `data` is empty at its end."""

    data: bytes
    next_offset: int


class LogReader(Protocol):
    """How the partitions of an internal topic are read; the broker provides it."""

    def bounds(self, partition: int) -> tuple[int, int]:
        """Log start and log end offset; raises ProtocolError where there is no log."""
        ...

    async def read(self, partition: int, offset: int) -> Chunk:
        """What comes at and after `offset`, committed or not, as much as is read at a time.

        Raises ProtocolError or StorageFault.
        """
        ...

    def where(self, partition: int, offset: int) -> str:
        """The file that holds the offset, for a message to a person."""
        ...


class Loaded(NamedTuple):
    """How many records a shard was given, and up to which offset."""

    records: int
    end: int


class UnreadableLogError(BraidlogError):
    """A record of an internal topic makes no sense; the message names file and offset, and what to do."""


async def load(shard: CoordinatorShard, topic: str, partition: int, logs: LogReader) -> Loaded:
    """Replay the whole partition, to the end that it had at the beginning."""
    offset, end = logs.bounds(partition)
    replayed = 0
    unknown: Counter[int] = Counter()
    while offset < end:
        chunk = await logs.read(partition, offset)
        if chunk.next_offset <= offset:
            break
        since_pause = 0
        for header in iterate_headers(chunk.data, 0, len(chunk.data)):
            try:
                records = read_batch(chunk.data, header)
                _replay_batch(shard, header, records, unknown)
            except (ProtocolError, MalformedError) as problem:
                raise _unreadable(topic, partition, header, problem, logs) from problem
            replayed += len(records)
            since_pause += len(records)
            if since_pause >= _RECORDS_AT_A_TIME:
                since_pause = 0
                await asyncio.sleep(0)
        offset = chunk.next_offset
        await asyncio.sleep(0)
    for version, count in unknown.items():
        log.warning("%s-%d: skipped %d records of the unknown kind %d", topic, partition, count, version)
    return Loaded(replayed, end)


def _replay_batch(shard: CoordinatorShard, header: BatchHeader, records: list[Record], unknown: Counter[int]) -> None:
    if header.is_control:
        for record in records:
            kind = control_type(record)
            if kind in (COMMIT, ABORT):
                shard.replay_end_transaction_marker(header.producer_id, header.producer_epoch, kind == COMMIT)
        return
    transactional = header.is_transactional
    producer_id = header.producer_id if transactional else -1
    producer_epoch = header.producer_epoch if transactional else -1
    for record in records:
        if record.key is None:
            raise MalformedError(f"the record at offset {record.offset} has no key")
        try:
            shard.replay(
                ReplayedRecord(record.offset, record.timestamp, record.key, record.value, producer_id, producer_epoch)
            )
        except UnknownRecordTypeError as problem:
            # Written by a newer version: of no use here, and no reason to refuse the rest.
            unknown[problem.version] += 1


def _unreadable(
    topic: str, partition: int, header: BatchHeader, problem: Exception, logs: LogReader
) -> UnreadableLogError:
    return UnreadableLogError(
        f"{topic}-{partition} cannot be loaded: the batch at offset {header.base_offset} in "
        f"{logs.where(partition, header.base_offset)} makes no sense ({problem}). What belongs to this partition is "
        f"unavailable, the rest works. Look at it with `braidlog log dump`, restore the file from a copy, and restart"
    )
