"""A batch that a broker finds too large becomes several smaller ones."""

from __future__ import annotations

from librt.strings import BytesWriter

from braidlog.client.producer.accumulator.limits import RECORD_OVERHEAD
from braidlog.client.producer.accumulator.producer_batch import Part, ProducerBatch
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
from braidlog.wire.records.encoding import write_record
from braidlog.wire.records.reading import Record, read_records


def may_split(batch: ProducerBatch) -> bool:
    return batch.count > 1


def split(accumulator: RecordAccumulator, batch: ProducerBatch) -> list[ProducerBatch]:
    """Put the records into batches at most half as large, in order, to be sent next; the old batch is replaced."""
    assert batch.head is not None
    records = list(read_records(batch.head + batch.body))
    limit = min(batch.split_below, max(batch.raw_size // 2, 1))
    pieces: list[tuple[int, list[Record]]] = []
    size = 0
    for index, record in enumerate(records):
        weight = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        weight += sum(len(name) * 3 + len(value or b"") + 10 for name, value in record.headers)
        if not pieces or size + weight > limit:
            pieces.append((index, []))
            size = 0
        pieces[-1][1].append(record)
        size += weight
    if len(pieces) == 1:
        middle = len(records) // 2
        pieces = [(0, records[:middle]), (middle, records[middle:])]
    parts = [_part(accumulator, batch, group) for _, group in pieces]
    _replace(accumulator, batch, parts, [first for first, _ in pieces])
    return parts


def _part(accumulator: RecordAccumulator, batch: ProducerBatch, records: list[Record]) -> ProducerBatch:
    writer = BytesWriter()
    part = ProducerBatch(batch.topic, batch.partition, batch.queue, accumulator.guard, writer)
    part.base_timestamp = records[0].timestamp
    part.max_timestamp = max(record.timestamp for record in records)
    for index, record in enumerate(records):
        write_record(writer, 0, record.timestamp - part.base_timestamp, index, record.key, record.value, record.headers)
    part.count = len(records)
    part.raw_size = len(writer)
    part.closed = True
    part.created = batch.created
    part.expires = batch.expires
    part.split_below = max(batch.split_below // 2, 1)
    part.transactional = batch.transactional
    return part


def _replace(
    accumulator: RecordAccumulator, batch: ProducerBatch, parts: list[ProducerBatch], firsts: list[int]
) -> None:
    queue = batch.queue
    assert queue is not None
    with accumulator.lock:
        accumulator.incomplete.pop(batch.serial, None)
        for part, first in zip(parts, firsts, strict=True):
            accumulator.register(part)
            part.order = batch.order
            part.order_within = batch.order_within + first
            accumulator.backlog += part.raw_size
        # The memory of the old batch is shared out, its last bytes to the last part.
        rest = batch.reserved
        for part in parts[:-1]:
            part.reserved = min(rest, part.raw_size)
            rest -= part.reserved
        parts[-1].reserved = rest
        batch.reserved = 0
        accumulator.producer_id_state.replace(queue, batch, parts)
        for part in parts:
            queue.reenqueue(part)
        accumulator.activate(queue)
        batch.in_flight = False
        ends = [*firsts[1:], int(batch.count)]
        batch.replace([Part(first, end, part, 0) for first, end, part in zip(firsts, ends, parts, strict=True)])
