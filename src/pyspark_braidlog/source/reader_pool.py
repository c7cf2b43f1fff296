"""The readers of this process: Spark reuses its Python workers, and tasks that follow reuse the connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final, NamedTuple

from braidlog.client.arrow.reading import RangeReader

# One that nobody used for so long is closed when the next is asked for, before brokers hang up by themselves.
_IDLE_S: Final = 300.0

_Settings = tuple[tuple[str, str], ...]


class _Resting(NamedTuple):
    reader: RangeReader
    since: float


class ReaderPool:
    """Hands out a reader for the settings, to one user at a time; takes it back unless it failed."""

    def __init__(
        self,
        new_reader: Callable[[Mapping[str, str]], RangeReader] = RangeReader,
        now: Callable[[], float] = time.monotonic,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        self._new_reader = new_reader
        self._now = now
        self._process_now = process
        self._forget()

    def _forget(self) -> None:
        self._process = self._process_now()
        self._lock = Lock()
        self._resting: dict[_Settings, list[_Resting]] = {}

    @contextmanager
    def reader(self, settings: Mapping[str, str]) -> Iterator[RangeReader]:
        chosen = tuple(sorted(settings.items()))
        reader = self._taken(chosen) or self._new_reader(settings)
        try:
            yield reader
        except GeneratorExit:
            # Somebody had enough of the rows: the reader is as good as before.
            self._give_back(chosen, reader)
            raise
        except BaseException:
            reader.close()
            raise
        self._give_back(chosen, reader)

    def _taken(self, chosen: _Settings) -> RangeReader | None:
        if self._process_now() != self._process:
            # After a fork: the readers' threads stayed behind, and the connections are the parent's.
            self._forget()
        with self._lock:
            stale = self._without_stale()
            resting = self._resting.get(chosen)
            found = resting.pop().reader if resting else None
        for each in stale:
            each.close()
        return found

    def _without_stale(self) -> list[RangeReader]:
        oldest = self._now() - _IDLE_S
        stale = [each.reader for some in self._resting.values() for each in some if each.since < oldest]
        kept = {chosen: [each for each in some if each.since >= oldest] for chosen, some in self._resting.items()}
        self._resting = {chosen: some for chosen, some in kept.items() if some}
        return stale

    def _give_back(self, chosen: _Settings, reader: RangeReader) -> None:
        if self._process_now() != self._process:
            return
        with self._lock:
            self._resting.setdefault(chosen, []).append(_Resting(reader, self._now()))

    def close(self) -> None:
        with self._lock:
            resting, self._resting = self._resting, {}
        for some in resting.values():
            for each in some:
                each.reader.close()


POOL: Final = ReaderPool()
