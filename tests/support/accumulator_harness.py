"""An accumulator with a clock and memory of its own."""

from __future__ import annotations

from typing import Any

from braidlog.client.producer.accumulator.producer_batch import ProducerBatch
from braidlog.client.producer.delivery import Delivery
from braidlog.core.clock import ManualClock
from support.send_path_harness import SendPathHarness


class AccumulatorHarness(SendPathHarness):
    def __init__(self, **limits: Any) -> None:
        self.clock = ManualClock()
        super().__init__(clock=self.clock, **limits)
        self.metadata_wait.appear("t")

    def send(self, value: bytes = b"", partition: int = 0) -> Delivery:
        return self.send_path.send("t", value, partition=partition)

    def drain(self) -> list[ProducerBatch]:
        """What broker 1 gets."""
        return self.accumulator.drain(self.clock.monotonic(), {1: 5}).requests.get(1, [])

    @property
    def look_at(self) -> float:
        return self.accumulator.drain(self.clock.monotonic(), {1: 5}).look_at
