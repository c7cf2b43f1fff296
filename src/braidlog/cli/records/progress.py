"""How far `produce` and `consume` are: a line on a terminal while they run, a sentence when they end."""

from __future__ import annotations

import sys
import time

from braidlog.cli.output import Progress, remark


class RecordProgress:
    """Counts records and bytes; `verb` is what happened to them: written, read."""

    def __init__(self, verb: str, *, beside_output: bool = False) -> None:
        self._verb = verb
        self._began = time.monotonic()
        self._progress = Progress()
        # Records that are being printed on the same terminal show well enough that something happens.
        self._is_quiet = beside_output and sys.stdout.isatty()
        self.records = 0
        self.bytes = 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size

    def show(self) -> None:
        if not self._is_quiet:
            self._progress.show(self.text())

    def text(self) -> str:
        seconds = max(time.monotonic() - self._began, 1e-6)
        return (
            f"{self.records:,} record{'' if self.records == 1 else 's'} {self._verb}, {self.bytes / 1e6:,.1f} MB "
            f"in {seconds:,.1f} s ({self.records / seconds:,.0f} records/s, {self.bytes / 1e6 / seconds:,.1f} MB/s)"
        )

    def clear(self) -> None:
        self._progress.clear()

    def conclude(self, *, interrupted: bool = False) -> None:
        """Say how it went: to who watches, and to who cut it short."""
        self.clear()
        if interrupted or (self._progress.is_watched and not self._is_quiet):
            remark(f"{'interrupted: ' if interrupted else ''}{self.text()}")
