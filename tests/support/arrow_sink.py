"""A producer that keeps the batches it is given, for tests of what makes them."""

from __future__ import annotations

from braidlog.client.cluster_view import PartitionView
from braidlog.client.producer.accumulator.producer_batch import Guard, Part, ProducerBatch
from braidlog.client.producer.accumulator.record_accumulator import AccumulatorLimits
from braidlog.client.producer.delivery import Delivery
from braidlog.core.clock import SystemClock
from braidlog.wire.records.encoding import encode_header
from braidlog.wire.records.reading import Record, read_records


class KeptBatch:
    def __init__(self, batch: ProducerBatch, body: bytes, base_timestamp: int, max_timestamp: int) -> None:
        self.batch = batch
        self.body = body
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp

    def records(self) -> list[Record]:
        count = int(self.batch.count)
        head = encode_header(self.body, 0, -1, 0, count - 1, self.base_timestamp, self.max_timestamp, -1, -1, -1, count)
        return read_records(head + self.body)


class KeepingSink:
    """Topics with the partitions given; `leaderless` ones have no leader."""

    def __init__(
        self, topics: dict[str, int], limits: AccumulatorLimits | None = None, leaderless: tuple[int, ...] = ()
    ) -> None:
        self._limits = limits or AccumulatorLimits()
        self.kept: list[KeptBatch] = []
        self._topics = topics
        self._leaderless = leaderless
        self._guard = Guard(SystemClock())

    def partitions_for(self, topic: str) -> list[PartitionView]:
        return [
            PartitionView(index, -1 if index in self._leaderless else 1, 0, (1,), (1,), ())
            for index in range(self._topics[topic])
        ]

    def _append_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        batch = ProducerBatch(topic, partition, None, self._guard, None)
        batch.count = count
        self.kept.append(KeptBatch(batch, body, base_timestamp, max_timestamp))
        return Delivery(batch, 0, base_timestamp, -1, -1)

    def values(self, topic: str) -> dict[int, list[bytes | None]]:
        """The values that went to each partition, in order."""
        values: dict[int, list[bytes | None]] = {}
        for each in self.kept:
            if each.batch.topic == topic:
                values.setdefault(each.batch.partition, []).extend(record.value for record in each.records())
        return values

    def records(self) -> list[Record]:
        return [record for each in self.kept for record in each.records()]

    def finish(self, at: int, base_offset: int = -1, error: Exception | None = None) -> None:
        """What the sender does when a batch is done."""
        finish(self.kept[at].batch, base_offset, error)

    def split(self, at: int, sizes: list[int]) -> list[ProducerBatch]:
        """What the sender does with a batch that a broker finds too large."""
        whole = self.kept[at].batch
        parts: list[Part] = []
        first = 0
        for size in sizes:
            piece = ProducerBatch(whole.topic, whole.partition, None, self._guard, None)
            piece.count = size
            parts.append(Part(first, first + size, piece, 0))
            first += size
        whole.replace(parts)
        return [part.batch for part in parts]


def finish(batch: ProducerBatch, base_offset: int, error: Exception | None = None) -> None:
    for waiter in batch.finish(base_offset, -1, error, None) or ():
        waiter.settle()
