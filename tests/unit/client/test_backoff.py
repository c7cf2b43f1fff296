from __future__ import annotations

from random import Random

import pytest

from braidlog.client.backoff import ExponentialBackoff
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


def test_pauses_grow_to_a_limit() -> None:
    backoff = ExponentialBackoff(0.1, 1.0, Random(1))
    grown = [backoff.next_s() for _ in range(8)]
    for pause, middle in zip(grown, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * middle <= pause <= 1.2 * middle
    backoff.reset()
    assert backoff.next_s() <= 0.12
