"""From kazoo's thread to the event loop: one queue for answers, watch events and changes of the connection alike.

They arrive on the loop in the order in which the thread put them, which is that of the bytes on the socket. So a watch
event is seen before the answer of any read that shows its change.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# The loop serves others between two slices.
_SLICE_S: Final = 0.005

_log = logging.getLogger("braidlog.cluster.zookeeper")


class EventQueue:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._scheduled = False

    def put(self, event: Callable[[], None]) -> None:
        """From any thread."""
        with self._lock:
            self._waiting.append(event)
            if self._scheduled:
                return
            self._scheduled = True
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        until = time.monotonic() + _SLICE_S
        while True:
            with self._lock:
                if not self._waiting:
                    self._scheduled = False
                    return
                event = self._waiting.popleft()
            try:
                event()
            except Exception:
                _log.exception("an event of the connection to ZooKeeper could not be handled")
            if time.monotonic() >= until:
                self._loop.call_soon(self._deliver)
                return
