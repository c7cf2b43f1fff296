"""Letting other threads run: compiled code never gives up the interpreter's lock by itself.

A long compiled loop that may run outside the main thread, where the broker's event loop lives, calls `yield_gil`
every few thousand items.
"""

from __future__ import annotations

import threading
import time

# Long enough for a thread that waits for the lock to wake up and take it.
_PAUSE_S = 0.00005


def yield_gil() -> None:
    if threading.get_ident() != threading.main_thread().ident:
        time.sleep(_PAUSE_S)
