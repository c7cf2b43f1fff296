"""Ctrl-C between two steps that belong together."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C is heard at the end of the block; a second one at once, for a block that does not end."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_heard or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if waiting:
            raise KeyboardInterrupt
        waiting = True

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if waiting:
        raise KeyboardInterrupt
