from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from braidlog.cli.interrupts import Interrupted, exit_code_of, interrupts_heard, interrupts_wait

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """Also where the tests themselves run in the background of a shell, which has them ignore interrupts."""
    usual = {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, usual.get(number, signal.SIG_DFL)) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_each_signal_interrupts_and_has_its_exit_code(number: signal.Signals, code: int) -> None:
    def work() -> None:
        with interrupts_heard():
            signal.raise_signal(number)

    with pytest.raises(Interrupted) as caught:
        work()
    assert exit_code_of(caught.value) == code
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "as it was before"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_is_heard_at_the_end(number: signal.Signals) -> None:
    steps = []

    def work() -> None:
        with interrupts_heard():
            with interrupts_wait():
                steps.append("printed")
                signal.raise_signal(number)
                steps.append("counted")
            steps.append("never")

    with pytest.raises(Interrupted):
        work()
    assert steps == ["printed", "counted"]


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_one_kills_at_once(second: signal.Signals) -> None:
    program = (
        "import signal\n"
        "from braidlog.cli.interrupts import interrupts_heard, interrupts_wait\n"
        "with interrupts_heard(), interrupts_wait():\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('held', flush=True)\n"
        f"    signal.raise_signal({int(second)})\n"
        "    print('never')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (-second, b"held\n")


def test_a_closed_terminal_may_say_so_twice() -> None:
    steps = []

    def work() -> None:
        with interrupts_heard(), interrupts_wait():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
            steps.append("committed")

    with pytest.raises(Interrupted):
        work()
    assert steps == ["committed"]


def test_a_terminal_that_closes_refuses_output_too() -> None:
    def work() -> None:
        with interrupts_heard(), interrupts_wait():
            signal.raise_signal(signal.SIGHUP)
            raise OSError("Input/output error")

    with pytest.raises(Interrupted):
        work()


def test_whoever_ignores_interrupts_goes_on_ignoring_them() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    with interrupts_heard(), interrupts_wait():
        for number in SIGNALS:
            signal.raise_signal(number)
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}


def test_other_threads_are_left_alone() -> None:
    ended = []

    def work() -> None:
        with interrupts_heard(), interrupts_wait():
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended
