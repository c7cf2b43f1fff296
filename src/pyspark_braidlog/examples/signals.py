"""Ctrl-C and SIGTERM: both end an example from wherever it is, with everything stopped that it has started."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class TerminationSignals:
    """The first one raises KeyboardInterrupt; those that follow leave the cleaning up undisturbed.

    Raised in the midst of a call to Java it may come out as another error: `received` tells what it was.
    """

    def __init__(self) -> None:
        # The number of the signal; 0 for none.
        self.received = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        before = [(number, signal.getsignal(number)) for number in _SIGNALS]
        self.install()
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            return
        self.received = number
        # The call to Java that is cut short would be logged with its traceback.
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt
