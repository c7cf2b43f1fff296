from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from braidlog.client.consumer.parallel.parallel_consumer import ParallelConsumer
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import HandlerFailedError
from braidlog.core.types import TopicPartition
from support.parallel_runs import FakeConsumer, Notes, keys

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def parallel(fake: FakeConsumer, handler: Callable[[ConsumerRecord], Any], **options: Any) -> ParallelConsumer:
    options = {"commit_interval": 0.0, "workers": 4, **options}
    return ParallelConsumer(cast(Any, fake), handler, **options).subscribe("t")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_record_is_tried_again_before_those_behind_it(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: [b"a", b"a", b"b", b"a"]})
    seen: list[int] = []

    def handler(record: ConsumerRecord) -> None:
        seen.append(record.offset)
        if seen.count(0) < 3 and record.offset == 0:
            raise OSError("not now")

    async def handler_async(record: ConsumerRecord) -> None:
        handler(record)

    consumer = parallel(fake, handler_async if is_async else handler, retries=2, retry_backoff=0.001)
    consumer.run(idle_timeout=0.05)
    assert [offset for offset in seen if offset != 2] == [0, 0, 0, 1, 3]
    assert fake.committed[ZERO] == 4
    assert consumer.metrics()["retries-total"] == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failure_stops_the_run_with_everything_before_it_committed(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: keys(30, 1)})

    def handler(record: ConsumerRecord) -> None:
        if record.offset == 20:
            raise LookupError("no such order")

    async def handler_async(record: ConsumerRecord) -> None:
        handler(record)

    with pytest.raises(HandlerFailedError, match=r"t-0 at offset 20: LookupError: no such order") as caught:
        parallel(fake, handler_async if is_async else handler).run()
    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.record is fake.logs[ZERO][20]
    assert fake.committed[ZERO] == 20


def test_no_thread_stays_behind() -> None:
    before = set(threading.enumerate())
    fake = FakeConsumer({ZERO: keys(20, 4)})
    parallel(fake, Notes().handle, workers=16).run(idle_timeout=0.01)

    async def handler(record: ConsumerRecord) -> None:
        return None

    parallel(FakeConsumer({ZERO: keys(20, 4)}), handler, workers=16).run(idle_timeout=0.01)
    assert set(threading.enumerate()) == before
