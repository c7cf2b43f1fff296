"""One thread at a time, as deep as it likes."""

from __future__ import annotations

import threading

import pytest

from braidlog.client.consumer.thread_check import OneThread
from braidlog.client.errors import ClosedError, ConcurrentUseError


def refused_elsewhere(guard: OneThread) -> bool:
    outcome: list[bool] = []

    def try_it() -> None:
        try:
            with guard:
                outcome.append(False)
        except ConcurrentUseError:
            outcome.append(True)

    other = threading.Thread(target=try_it)
    other.start()
    other.join()
    return outcome[0]


def test_calls_within_calls() -> None:
    guard = OneThread("consumer")
    with guard:
        with guard:
            assert refused_elsewhere(guard)
        assert refused_elsewhere(guard)
    assert not refused_elsewhere(guard)


def test_freed_by_an_error() -> None:
    guard = OneThread("consumer")
    with pytest.raises(ZeroDivisionError), guard:
        raise ZeroDivisionError
    assert not refused_elsewhere(guard)


def test_after_a_fork_every_call_is_refused_even_inside_one() -> None:
    one = OneThread("consumer")
    with one:
        one.mark_forked()
        with pytest.raises(ClosedError, match="this consumer was made before a fork"), one:
            pass
    assert one.is_forked
    with pytest.raises(ClosedError, match="make a new one here"):
        one.check()
