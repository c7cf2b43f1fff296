from __future__ import annotations

import pytest

from support.retry_clock import RetryClock


async def test_pauses_grow_until_the_time_is_over() -> None:
    patience = RetryClock()
    retry = patience.retry(1.0)
    while await retry.again():
        pass
    assert patience.sleeps[:4] == pytest.approx([0.02, 0.04, 0.08, 0.16])
    assert sum(patience.sleeps) == pytest.approx(1.0)
    assert max(patience.sleeps) <= 0.5


async def test_no_time_no_second_try() -> None:
    assert not await RetryClock().retry(0.0).again()
