"""A line that says what is running now, on a terminal; silence elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._began = time.monotonic()

    def show(self, what: str) -> None:
        if self._live:
            minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
            self._stream.write(f"\r\x1b[K[{minutes:02d}:{seconds:02d}] {what}")
            self._stream.flush()

    def clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
