from __future__ import annotations

import asyncio
import threading
import time

import pytest

from braidlog.cluster.zookeeper.event_queue import EventQueue


def test_events_of_a_thread_arrive_on_the_loop_in_their_order() -> None:
    async def run() -> None:
        queue = EventQueue(asyncio.get_running_loop())
        seen: list[int] = []
        done = asyncio.Event()
        main = threading.get_ident()

        def arrive(number: int) -> None:
            assert threading.get_ident() == main
            seen.append(number)
            if number == 9_999:
                done.set()

        def put() -> None:
            for number in range(10_000):
                queue.put(lambda number=number: arrive(number))  # type: ignore[misc]

        thread = threading.Thread(target=put)
        thread.start()
        await asyncio.wait_for(done.wait(), 30)
        thread.join()
        assert seen == list(range(10_000))

    asyncio.run(run())


def test_the_loop_serves_others_while_many_events_are_delivered() -> None:
    async def run() -> None:
        queue = EventQueue(asyncio.get_running_loop())
        busy = time.monotonic
        delivered = 0

        def slow() -> None:
            nonlocal delivered
            delivered += 1
            until = busy() + 0.002
            while busy() < until:
                pass

        for _ in range(20):
            queue.put(slow)
        await asyncio.sleep(0)
        assert 0 < delivered < 20
        done = asyncio.Event()
        queue.put(done.set)
        await done.wait()
        assert delivered == 20

    asyncio.run(run())


def test_an_event_that_fails_does_not_hold_up_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        queue = EventQueue(asyncio.get_running_loop())
        done = asyncio.Event()
        queue.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        queue.put(done.set)
        await asyncio.wait_for(done.wait(), 10)

    asyncio.run(run())
    assert "could not be handled" in caplog.text


def test_a_loop_that_is_closed_hears_nothing() -> None:
    loop = asyncio.new_event_loop()
    queue = EventQueue(loop)
    loop.close()
    queue.put(lambda: None)
