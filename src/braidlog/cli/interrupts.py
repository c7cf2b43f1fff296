"""Ctrl-C, SIGTERM and SIGHUP: a command ends what it has begun, says how far it came, and exits with 128 + the signal.

The first signal raises `Interrupted` in the main thread, at once or at the end of the steps that belong together. The
second kills the process as it would have done without us. A closed terminal may send SIGHUP several times (the shell
and the kernel both do), so those that follow a first signal are ignored. A signal that was ignored at the start,
as by nohup or in the background of a script, stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asks to end; `exit_code` is what shells report of a process that the signal ended."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def exit_code_of(interruption: KeyboardInterrupt) -> int:
    return interruption.exit_code if isinstance(interruption, Interrupted) else 128 + signal.SIGINT


class _Listener:
    def __init__(self) -> None:
        # How many blocks must come to their end first.
        self.held = 0
        # The signal that came meanwhile.
        self.waiting: int | None = None
        self.handlers: dict[int, Any] = {}

    def hear(self, number: int, frame: FrameType | None) -> None:
        for each in self.handlers:
            signal.signal(each, signal.SIG_IGN if each == signal.SIGHUP else signal.SIG_DFL)
        if self.held:
            self.waiting = number
        else:
            raise Interrupted(number)


_listener = _Listener()


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """While a command runs, each of the signals means the same."""
    listener = _listener
    if threading.current_thread() is not threading.main_thread() or listener.handlers:
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    listener.handlers = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in listener.handlers:
        signal.signal(number, listener.hear)
    try:
        yield
    finally:
        for number, handler in listener.handlers.items():
            signal.signal(number, handler)
        listener.handlers = {}
        listener.waiting = None


def is_interruption_waiting() -> bool:
    """Whether a signal came during steps that belong together: what they only wait for is not worth it any more."""
    return _listener.waiting is not None


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Steps that belong together: the first signal is heard at their end, the second at once."""
    listener = _listener
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listener.held += 1
    try:
        yield
    except OSError as problem:
        # A terminal that closes refuses what is written to it, too.
        if listener.waiting is not None:
            raise Interrupted(listener.waiting) from problem
        raise
    finally:
        listener.held -= 1
    if listener.waiting is not None and not listener.held:
        number, listener.waiting = listener.waiting, None
        raise Interrupted(number)
