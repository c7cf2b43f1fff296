"""A producer's send path without a broker."""

from __future__ import annotations

from typing import Any

from braidlog.client.cluster_view import PartitionView, TopicView
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_batch import notify_waiters
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.client.producer.accumulator.record_accumulator import AccumulatorLimits, RecordAccumulator
from braidlog.client.producer.send_path import SendPath
from braidlog.core.clock import Clock, SystemClock
from braidlog.wire.records.reading import Record, read_records
from support.producer_simulation import FirstPartition


class FakeMetadataWait:
    """Topics appear when they are waited for; in an event loop nothing may wait."""

    def __init__(self, in_loop: bool) -> None:
        self.in_loop = in_loop
        self.accumulator: Any = None
        self.awaited: list[tuple[str, int]] = []

    def in_event_loop(self) -> bool:
        return self.in_loop

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        assert not self.in_loop
        self.awaited.append((topic, partition))
        self.appear(topic)

    def appear(self, topic: str) -> None:
        """Metadata has the topic, with four partitions led by broker 1."""
        partitions = tuple(PartitionView(at, 1, 0, (), (), ()) for at in range(4))
        view = TopicView(topic, bytes(16), 0, False, partitions)
        self.accumulator.update_topic(topic, view, bytes(16), [1] * 4)


class SendPathHarness:
    """A send path over an accumulator, and what the sender would take of it."""

    def __init__(self, *, clock: Clock | None = None, in_loop: bool = False, **limits: Any) -> None:
        self.metadata_wait = FakeMetadataWait(in_loop)
        self.calls = 0
        self.accumulator = RecordAccumulator(
            AccumulatorLimits(**limits),
            ProducerIdState(False, False),
            clock or SystemClock(),
            FirstPartition(),
            self._count_wakeup,
        )
        self.metadata_wait.accumulator = self.accumulator
        self.send_path = SendPath(self.accumulator, self.metadata_wait, None)

    def _count_wakeup(self) -> None:
        self.calls += 1

    def records(self) -> dict[int, list[Record]]:
        """Take everything, as the sender would, and acknowledge it."""
        found: dict[int, list[Record]] = {}
        batch_encoder = BatchEncoder(0, None)
        self.accumulator.wakeup_received()
        while requests := self.accumulator.drain(1e9, {1: 100}).requests:
            for batch in requests[1]:
                batch_encoder.encode(batch, self.accumulator.pool)
                assert batch.head is not None
                found.setdefault(batch.partition, []).extend(read_records(batch.head + batch.body))
                with self.accumulator.lock:
                    waiters = self.accumulator.finish(batch, 0, -1, None, None)
                notify_waiters(waiters)
        return found
