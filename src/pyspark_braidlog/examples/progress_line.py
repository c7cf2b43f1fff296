"""Progress as one line that changes; without a terminal, a new line now and then."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

_WATCHED_EVERY_S: Final = 0.2
_QUIET_EVERY_S: Final = 5.0


class ProgressLine:
    """`show` often, `end` once: the last text stays."""

    def __init__(self, out: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._out = sys.stdout if out is None else out
        self._now = now
        self.is_watched = self._out.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        # The first line where nobody watches is worth waiting for: it has something to tell by then.
        self._next = 0.0 if self.is_watched else now() + _QUIET_EVERY_S
        self._text = ""
        self._width = 0

    def show(self, text: str) -> None:
        self._text = text
        if self._now() < self._next:
            return
        self._next = self._now() + (_WATCHED_EVERY_S if self.is_watched else _QUIET_EVERY_S)
        self._write()

    def end(self) -> None:
        if self._text:
            self._write()
        if self.is_watched and self._width:
            self._out.write("\n")
            self._out.flush()
        self._text, self._width = "", 0

    def _write(self) -> None:
        if self.is_watched:
            self._out.write("\r" + self._text.ljust(self._width))
            self._width = len(self._text)
        else:
            self._out.write(self._text + "\n")
        self._out.flush()
