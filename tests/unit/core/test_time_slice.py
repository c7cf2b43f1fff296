from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from random import Random

from braidlog.core.time_slice import SLICE_S, TimeSlice, run_in_slices
from braidlog.testing.simulated.loop import SimulatedLoop


def work_for(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_a_coroutine_rests_when_it_has_worked_for_long() -> None:
    order: list[str] = []

    async def work() -> None:
        time_slice = TimeSlice()
        for number in range(3):
            order.append(f"item {number}")
            work_for(2 * SLICE_S)
            await time_slice.yield_if_over()

    async def other() -> None:
        for _ in range(2):
            order.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(work(), other())

    asyncio.run(both())
    assert order == ["item 0", "other", "item 1", "other", "item 2"]


def test_a_simulated_loop_paces_by_its_own_clock() -> None:
    loop = SimulatedLoop(Random(1))  # type: ignore[abstract]
    order: list[str] = []

    async def work() -> None:
        time_slice = TimeSlice()
        for number in range(2):
            order.append(f"item {number}")
            work_for(2 * SLICE_S)
            await time_slice.yield_if_over()

    async def other() -> None:
        order.append("other")

    async def both() -> None:
        await asyncio.gather(work(), other())

    loop.run_until_complete(both())
    assert order in (["item 0", "item 1", "other"], ["other", "item 0", "item 1"])


def test_a_generator_is_driven_to_its_result_with_others_in_between() -> None:
    order: list[str] = []

    def work() -> Generator[None, None, str]:
        for number in range(2):
            order.append(f"item {number}")
            work_for(2 * SLICE_S)
            yield
        return "done"

    async def other() -> None:
        order.append("other")

    async def both() -> str:
        result, _ = await asyncio.gather(run_in_slices(work()), other())
        return str(result)

    assert asyncio.run(both()) == "done"
    assert order == ["item 0", "other", "item 1"]
