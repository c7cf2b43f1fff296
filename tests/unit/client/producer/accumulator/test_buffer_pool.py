"""Memory is bounded, and who waits for it is served in order."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.producer.accumulator.buffer_pool import BufferPool, MemoryWaiter


def test_the_first_in_line_is_not_overtaken() -> None:
    pool = BufferPool(100, 10)
    assert pool.reserve(80)
    first = pool.enqueue(50, False)
    second = pool.enqueue(10, False)
    assert not pool.reserve(5), "there is room for it, but others came before"
    pool.release(20)
    assert [first.granted, second.granted] == [False, False], "the first still waits"
    pool.release(20)
    assert [first.granted, second.granted] == [True, True]
    assert pool.available == 0


def test_a_cancelled_wait_makes_way_for_the_next() -> None:
    pool = BufferPool(100, 10)
    assert pool.reserve(60)
    first = pool.enqueue(90, False)
    second = pool.enqueue(40, False)
    pool.cancel_wait(first)
    assert second.granted
    pool.cancel_wait(second)
    assert pool.available == 40


def wait(waiter: MemoryWaiter, timeout: float) -> bool:
    assert waiter.lock is not None
    waiter.lock.acquire(True, timeout)
    return waiter.granted


def test_threads_sleep_until_they_are_served() -> None:
    pool = BufferPool(10, 10)
    assert pool.reserve(10)
    waiter = pool.enqueue(10, True)
    served: list[bool] = []
    thread = threading.Thread(target=lambda: served.append(wait(waiter, 60)))
    thread.start()
    pool.release(10)
    thread.join()
    assert served == [True]
    assert not wait(pool.enqueue(20, True), 0.001)


def test_all_are_woken_when_there_is_no_more() -> None:
    pool = BufferPool(10, 10)
    waiter = pool.enqueue(20, True)
    pool.wake_all_waiters()
    assert not wait(waiter, 60)


def test_writers_are_used_again() -> None:
    pool = BufferPool(100, 10)
    writer = pool.writer()
    writer.write(b"something")
    pool.recycle(writer)
    again = pool.writer()
    assert again is writer
    assert len(again) == 0


@given(st.lists(st.tuples(st.sampled_from(("reserve", "wait", "release", "give up")), st.integers(1, 100))))
def test_reserved_and_available_memory_add_up(steps: list[tuple[str, int]]) -> None:
    pool = BufferPool(100, 10)
    held: list[int] = []
    line: list[MemoryWaiter] = []
    for step, size in steps:
        if step == "reserve":
            if pool.reserve(size):
                assert not line
                held.append(size)
        elif step == "wait":
            line.append(pool.enqueue(size, False))
            pool.release(0)
        elif step == "release" and held:
            pool.release(held.pop(0))
        elif step == "give up" and line:
            pool.cancel_wait(line.pop(size % len(line)))
        for waiter in [each for each in line if each.granted]:
            assert line[0] is waiter, "served out of turn"
            held.append(waiter.needed)
            line.remove(waiter)
        assert pool.available == 100 - sum(held)
        assert pool.available >= 0
        assert not line or line[0].needed > pool.available
