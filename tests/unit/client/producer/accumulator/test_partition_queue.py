from __future__ import annotations

from braidlog.client.errors import ClosedError
from braidlog.client.producer.accumulator.producer_batch import notify_waiters
from support.accumulator_harness import AccumulatorHarness


def test_an_abort_of_what_was_not_sent_spares_the_rest() -> None:
    scene = AccumulatorHarness()
    sent = scene.send()
    scene.drain()
    unsent = scene.send()
    failed, waiters = scene.accumulator.abort_batches(ClosedError("aborted"), unsent_only=True)
    notify_waiters(waiters)
    assert len(failed) == 1
    assert isinstance(unsent.exception(0), ClosedError)
    assert not sent.done()
    assert scene.accumulator.backlog == 0
    scene.accumulator.abort_batches(ClosedError("closed"), unsent_only=False)
    assert isinstance(sent.exception(0), ClosedError)
    assert scene.accumulator.pool.available == scene.accumulator.limits.memory
