"""Calls what clients have to do when the program ends, also where Python itself calls nothing.

A child of multiprocessing leaves by `os._exit`. Of all that Python does at exit it only waits for the threads, and has
a list of calls to make before that, for executors to let go of theirs.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

_handlers: list[Callable[[], object]] = []


def at_exit(handler: Callable[[], object]) -> None:
    """Call when the program ends and its threads have ended; in some programs twice."""
    atexit.register(handler)
    _handlers.append(handler)


def _before_threads_end() -> None:
    processes = sys.modules.get("multiprocessing.process")
    if _handlers and processes is not None and processes.parent_process() is not None:
        # The program's own threads may send until they end. So a thread waits for them, which is waited for itself. One
        # that cannot be started (from Python 3.12 on, at the end of an interpreter) is not needed: atexit works there.
        with suppress(RuntimeError):
            threading.Thread(target=_call_when_alone, name="braidlog exit").start()


def _call_when_alone() -> None:
    ours = (threading.current_thread(), threading.main_thread())
    while others := [each for each in threading.enumerate() if not each.daemon and each not in ours]:
        for each in others:
            each.join()
    for handler in reversed(_handlers):
        handler()


# As concurrent.futures does; there is no public name for it. Refused when the interpreter is ending already.
with suppress(RuntimeError):
    threading._register_atexit(_before_threads_end)  # type: ignore[attr-defined]
