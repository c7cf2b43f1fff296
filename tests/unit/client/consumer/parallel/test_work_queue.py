from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import pytest

from braidlog.client.consumer.parallel.parallel_consumer import ParallelConsumer
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.types import TopicPartition
from support.parallel_runs import FakeConsumer, Notes, keys

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def parallel(fake: FakeConsumer, handler: Callable[[ConsumerRecord], Any], **options: Any) -> ParallelConsumer:
    options = {"commit_interval": 0.0, "workers": 4, **options}
    return ParallelConsumer(cast(Any, fake), handler, **options).subscribe("t")


@pytest.mark.parametrize("is_async", [False, True])
def test_every_key_keeps_its_order_and_all_is_committed(is_async: bool) -> None:
    fake, notes = FakeConsumer({ZERO: keys(600, 11), ONE: keys(400, 3)}), Notes()
    handler = notes.handle_async if is_async else notes.handle
    parallel(fake, handler, max_in_flight=100).run(idle_timeout=0.05)
    notes.check(fake)
    assert notes.most_at_once > 1


@pytest.mark.parametrize("is_async", [False, True])
def test_the_order_of_partitions(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: keys(200, 11), ONE: keys(200, 3)})
    seen: dict[int, list[int]] = defaultdict(list)

    def note(record: ConsumerRecord) -> None:
        seen[record.partition].append(record.offset)

    async def note_async(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        note(record)

    parallel(fake, note_async if is_async else note, ordering="partition").run(idle_timeout=0.05)
    assert seen == {0: list(range(200)), 1: list(range(200))}
