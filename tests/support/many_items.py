"""Requests that list very many things, and others that are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.clock import SystemClock
from braidlog.core.tasks import Tasks

MANY = 20_000


NAMES = [f"name-{number}" for number in range(MANY)]


def answer_of(handling: Coroutine[Any, Any, Any]) -> Any:
    """The answer, for which others must not have had to wait."""
    turns = 0
    answers: list[Any] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        counting = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        # Not returned: asyncio.run would make a text of what the task returns.
        answers.append(await handling)
        counting.cancel()

    asyncio.run(run())
    assert turns > 5
    return answers[0]


def exchange(version: int) -> Any:
    class AnExchange:
        pass

    made: Any = AnExchange()
    made.version = version
    return made


def nobodys_coordinator() -> Any:
    """It leads no partition, and so answers at once."""
    logs: Any = None
    make_shard: Any = None
    return CoordinatorRuntime("topic", logs, make_shard, lambda: 50, SystemClock(), Tasks("test"))
