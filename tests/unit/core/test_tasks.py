from __future__ import annotations

import asyncio
import logging

import pytest

from braidlog.core.tasks import Tasks


def test_a_failure_is_logged_with_the_owners_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    async def main() -> None:
        tasks = Tasks("owner")
        task = tasks.spawn("work", fail())
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert len(tasks) == 0

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "owner: work failed" in caplog.text


def test_closing_ends_what_still_runs() -> None:
    async def main() -> None:
        tasks = Tasks("owner")
        task = tasks.spawn("forever", asyncio.Event().wait())
        await asyncio.sleep(0)
        await tasks.close()
        assert task.cancelled()

    asyncio.run(main())
