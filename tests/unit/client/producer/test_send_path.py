"""What `send` takes, what it refuses, and how a thread waits for memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from braidlog.client.errors import BufferFullError, ClosedError, SerializationError
from braidlog.client.producer.accumulator.producer_batch import notify_waiters
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.send_path import encoded_headers
from braidlog.core.errors import UserError
from braidlog.wire.records.encoding import NO_HEADERS, encode_headers
from support.send_path_harness import SendPathHarness


def test_bytes_text_and_nothing_need_no_serializer() -> None:
    scene = SendPathHarness()
    for value in (b"bytes", "téxt", None, bytearray(b"array"), memoryview(b"view")):
        scene.send_path.send("t", value, partition=0)
    assert [record.value for record in scene.records()[0]] == [b"bytes", "téxt".encode(), None, b"array", b"view"]
    with pytest.raises(SerializationError, match=r"a value of type int needs a value\.serializer"):
        scene.send_path.send("t", 5)
    with pytest.raises(SerializationError, match="a key of type list"):
        scene.send_path.send("t", b"", key=[])


def test_headers_in_every_form() -> None:
    pairs = (("a", b"1"), ("b", None))
    assert encoded_headers(pairs) == encode_headers(pairs)
    assert encoded_headers([("a", "1"), ("b", None)]) == encode_headers(pairs)
    assert encoded_headers({"a": b"1", "b": None}) == encode_headers(pairs)
    assert encoded_headers(()) == NO_HEADERS
    with pytest.raises(SerializationError, match="a header's name is text"):
        encoded_headers([(b"a", b"1")])  # type: ignore[list-item]


@pytest.mark.parametrize("given", ["ab", ["ab", "cd"], [("a", b"1", b"2")], [b"ab"], [1]])
def test_headers_that_are_no_pairs_are_refused(given: Any) -> None:
    with pytest.raises(SerializationError, match="is no pair; give headers="):
        encoded_headers(given)


@pytest.mark.parametrize("topic", [None, b"t", 5])
def test_a_topic_that_is_no_text_is_not_waited_for(topic: Any) -> None:
    scene = SendPathHarness()
    # Compiled, the call itself is refused.
    with pytest.raises((UserError, TypeError)):
        scene.send_path.send(topic, b"")
    assert scene.metadata_wait.awaited == []


def test_numbers_below_zero_are_refused() -> None:
    scene = SendPathHarness()
    with pytest.raises(UserError, match="partition=-1"):
        scene.send_path.send("t", b"", partition=-1)
    with pytest.raises(UserError, match="timestamp_ms=-5"):
        scene.send_path.send("t", b"", timestamp_ms=-5)


def test_a_topic_is_waited_for_once_and_a_partition_too() -> None:
    scene = SendPathHarness()
    scene.send_path.send("t", b"", partition=3)
    scene.send_path.send("t", b"", partition=2)
    assert scene.metadata_wait.awaited == [("t", 3)]


def test_records_without_a_key_stay_until_a_batch_is_full() -> None:
    scene = SendPathHarness(batch_size=200)
    for _ in range(9):
        scene.send_path.send("t", bytes(60))
    found = scene.records()
    assert {partition: len(records) for partition, records in found.items()} == {0: 3, 1: 2, 2: 2, 3: 2}


def test_timestamps_may_go_back() -> None:
    scene = SendPathHarness()
    for stamp in (1_000, 5, 2_000, 0):
        scene.send_path.send("t", b"", partition=0, timestamp_ms=stamp)
    assert [record.timestamp for record in scene.records()[0]] == [1_000, 5, 2_000, 0]


def test_the_engine_is_called_once_for_many_records() -> None:
    scene = SendPathHarness()
    for _ in range(50):
        scene.send_path.send("t", b"", partition=0)
    assert scene.calls == 1
    scene.records()
    scene.send_path.send("t", b"", partition=0)
    assert scene.calls == 2


def test_threads_get_memory_in_the_order_they_came() -> None:
    scene = SendPathHarness(memory=100, batch_size=100, max_block_s=60.0)
    scene.send_path.send("t", bytes(50), partition=0)
    order: list[int] = []
    threads = []
    for number in range(3):
        before = len(scene.accumulator.pool.waiters)

        def work(number: int = number) -> None:
            scene.send_path.send("t", bytes(50), partition=number + 1)
            order.append(number)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        while len(scene.accumulator.pool.waiters) == before:
            pass
    while len(order) < 3:
        have = len(order)
        scene.records()
        while len(order) == have:
            pass
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]


def test_memory_that_does_not_get_free() -> None:
    scene = SendPathHarness(memory=100, batch_size=100, max_block_s=0.01)
    scene.send_path.send("t", bytes(50), partition=0)
    with pytest.raises(BufferFullError, match=r"max\.block\.ms \(0\.01 s\)"):
        scene.send_path.send("t", bytes(50), partition=1)
    scene.records()
    scene.send_path.send("t", bytes(50), partition=1)


def test_a_closing_producer_wakes_waiting_threads() -> None:
    scene = SendPathHarness(memory=100, batch_size=100, max_block_s=60.0)
    scene.send_path.send("t", bytes(50), partition=0)
    problems: list[Exception] = []

    def work() -> None:
        try:
            scene.send_path.send("t", bytes(50), partition=1)
        except ClosedError as problem:
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    while not scene.accumulator.pool.waiters:
        pass
    scene.accumulator.refuse(ClosedError("closed"))
    with scene.accumulator.lock:
        scene.accumulator.pool.wake_all_waiters()
    thread.join()
    assert len(problems) == 1


def test_a_refused_call_does_not_wait_for_a_lock_that_is_never_released() -> None:
    """In the child of a fork: some thread of the parent's had it at that moment, and is not there."""
    scene = SendPathHarness()
    delivery = scene.send_path.send("t", b"", partition=0)
    scene.accumulator.refuse(ClosedError("left behind"))
    scene.accumulator.guard.gone = scene.accumulator.refusal
    sends = (
        lambda: scene.send_path.send("t", b"", partition=0),
        lambda: delivery.add_done_callback(print),
        lambda: scene.send_path._append_batch("t", 0, b"x", 1, 0, 0),
    )
    problems: list[Exception] = []

    def work() -> None:
        for send in sends:
            try:
                send()
            except ClosedError as problem:
                problems.append(problem)

    thread = threading.Thread(target=work, daemon=True)
    with scene.accumulator.lock:
        thread.start()
        thread.join(10)
    assert len(problems) == len(sends)


def test_a_shared_error_does_not_collect_frames() -> None:
    scene = SendPathHarness()
    failed = [scene.send_path.send("t", b"", partition=0) for _ in range(2)]
    notify_waiters(scene.accumulator.abort_batches(ClosedError("failed"), unsent_only=False)[1])
    scene.accumulator.refuse(ClosedError("closed"))

    def frames(call: Callable[[], object]) -> int:
        with pytest.raises(ClosedError) as met:
            call()
        return len(met.traceback)

    assert frames(failed[0].result) == frames(failed[1].result)
    send = partial(scene.send_path.send, "t", b"", partition=0)
    assert frames(send) == frames(send)


def test_a_delivery_waits_calls_back_and_shows_its_state() -> None:
    scene = SendPathHarness()
    called: list[Delivery] = []
    delivery = scene.send_path.send("t", b"", partition=0)
    delivery.add_done_callback(called.append)
    assert not delivery.done()
    assert "pending" in repr(delivery)
    with pytest.raises(TimeoutError, match="may still be written"):
        delivery.result(0.001)
    scene.records()
    assert called == [delivery]
    assert delivery.exception() is None
    assert delivery.result().partition == 0
    delivery.add_done_callback(called.append)
    assert called == [delivery, delivery]


def test_a_callback_that_fails_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    scene = SendPathHarness()
    reported: list[object] = []

    def broken(metadata: object, error: object) -> None:
        raise ValueError("of the program")

    scene.send_path.send("t", b"", partition=0, on_delivery=broken)
    scene.send_path.send("t", b"", partition=0, on_delivery=lambda metadata, error: reported.append(metadata))
    scene.records()
    assert len(reported) == 1
    assert "a delivery callback failed" in caplog.text
