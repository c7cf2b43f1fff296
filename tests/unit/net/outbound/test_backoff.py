from __future__ import annotations

from random import Random

from braidlog.net.outbound.backoff import ExponentialBackoff


def test_pauses_grow_to_a_limit() -> None:
    backoff = ExponentialBackoff(0.1, 1.0, Random(1))
    grown = [backoff.next_s() for _ in range(8)]
    for pause, middle in zip(grown, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert 0.8 * middle <= pause <= 1.2 * middle
    backoff.reset()
    assert backoff.next_s() <= 0.12
