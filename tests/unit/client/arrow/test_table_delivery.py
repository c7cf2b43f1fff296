"""What became of a table: ranges, failures, waiting, batches that were split."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

from braidlog.client.arrow import table_delivery as delivery_module
from braidlog.client.arrow.producing import send_arrow
from braidlog.client.arrow.table_delivery import TableDelivery, TableDeliveryError
from braidlog.core.protocol_errors import NotEnoughReplicasError
from braidlog.core.types import TopicPartition
from support.arrow_sink import KeepingSink, finish

T0 = TopicPartition("t", 0)


def sent(rows: int = 6, batch_rows: int = 2) -> tuple[KeepingSink, TableDelivery]:
    """Three batches of two rows each."""
    sink = KeepingSink({"t": 1})
    delivery = send_arrow(sink, pa.table({"value": ["v" * 20] * rows}), "t", batch_size=61 + 30 * batch_rows)
    assert [each.batch.count for each in sink.kept] == [batch_rows] * (rows // batch_rows)
    return sink, delivery


def test_ranges_grow_together() -> None:
    sink, delivery = sent()
    for at, offset in ((0, 10), (2, 20), (1, 12)):
        assert not delivery.done()
        with pytest.raises(TimeoutError):
            delivery.result(0.0)
        sink.finish(at, offset)
    assert delivery.done()
    outcome = delivery.result(0.0)
    assert outcome.written == 6
    assert outcome.partitions[T0].ranges == [(10, 13), (20, 21)]
    assert delivery.result(0.0).partitions == outcome.partitions


def test_what_failed_is_reported_by_partition() -> None:
    sink, delivery = sent()
    sink.finish(0, 0)
    sink.finish(1, error=NotEnoughReplicasError("two are down"))
    sink.finish(2, 2)
    with pytest.raises(TableDeliveryError, match="2 of 6 rows were not written, those for t-0: NOT_ENOUGH") as caught:
        delivery.result(0.0)
    assert isinstance(caught.value.__cause__, NotEnoughReplicasError)
    outcome = caught.value.outcome.partitions[T0]
    assert (outcome.written, outcome.failed, outcome.ranges) == (4, 2, [(0, 3)])
    assert isinstance(delivery.exception(0.0), TableDeliveryError)


def test_a_split_batch_is_done_when_its_parts_are() -> None:
    sink, delivery = sent(2)
    seen: list[bool] = []
    delivery.add_done_callback(lambda each: seen.append(each.done()))
    first, second = sink.split(0, [1, 1])
    finish(second, 8)
    assert not delivery.done()
    assert seen == []
    finish(first, 5)
    assert seen == [True]
    assert delivery.result(0.0).partitions[T0].ranges == [(5, 5), (8, 8)]


def test_acks_0_gives_no_offsets() -> None:
    sink, delivery = sent(2)
    sink.finish(0, -1)
    outcome = delivery.result(0.0).partitions[T0]
    assert (outcome.written, outcome.ranges) == (2, [])


def test_waiting_in_another_thread() -> None:
    sink, delivery = sent()
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(delivery.result(10.0).written))
    waiting.start()
    for at in range(3):
        sink.finish(at, 2 * at)
    waiting.join(10.0)
    assert got == [6]


def test_awaiting() -> None:
    sink, delivery = sent()

    async def main() -> int:
        loop = asyncio.get_running_loop()
        for at in range(3):
            loop.call_soon(sink.finish, at, 2 * at)
        return (await delivery).written

    assert asyncio.run(main()) == 6


def test_callbacks_come_once_and_their_failures_are_their_own(caplog: pytest.LogCaptureFixture) -> None:
    sink, delivery = sent()
    calls: list[TableDelivery] = []
    delivery.add_done_callback(calls.append)
    delivery.add_done_callback(lambda _: 1 // 0)
    for at in range(3):
        sink.finish(at, 2 * at)
    assert calls == [delivery]
    assert "a delivery callback failed" in caplog.text
    delivery.add_done_callback(calls.append)
    assert calls == [delivery, delivery]


def test_batches_that_are_done_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "_SWEEP", 2)
    sink = KeepingSink({"t": 1})
    delivery = TableDelivery()
    for at in range(10):
        delivery.add(T0, sink._append_batch("t", 0, b"", 1, 0, 0))
        sink.finish(at, at)
    assert len(delivery._pending) <= 2
    assert delivery.result(0.0).partitions[T0].ranges == [(0, 9)]


def test_two_threads_that_ask_book_every_batch_once() -> None:
    sink, delivery = sent(4)
    first = sink.kept[0].batch
    beside: list[threading.Thread] = []

    class Asked:
        """The first batch: while one thread looks at it, another asks as well."""

        batch = first

        def all_done(self) -> bool:
            done = first.all_done()
            if done and not beside:
                beside.append(threading.Thread(target=delivery.done))
                beside[0].start()
                beside[0].join(0.2)
            return done

        def __getattr__(self, name: str) -> object:
            return getattr(first, name)

    delivery._pending[0] = (T0, Asked())  # type: ignore[assignment]
    sink.finish(0, 10)
    assert not delivery.done()
    beside[0].join()
    sink.finish(1, 20)
    assert delivery.result(0.0).partitions[T0].ranges == [(10, 11), (20, 21)]
