from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from braidlog.cli.interrupts import interrupts_wait


@pytest.fixture(autouse=True)
def hearing() -> Iterator[None]:
    """Also where the tests themselves run in the background of a shell, which has them ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_heard_at_the_end() -> None:
    steps = []

    def work() -> None:
        with interrupts_wait():
            steps.append("printed")
            signal.raise_signal(signal.SIGINT)
            steps.append("counted")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["printed", "counted"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_is_heard_at_once() -> None:
    steps = []

    def work() -> None:
        with interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_ignores_interrupts_goes_on_ignoring_them() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_wait():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_are_left_alone() -> None:
    ended = []

    def work() -> None:
        with interrupts_wait():
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended
