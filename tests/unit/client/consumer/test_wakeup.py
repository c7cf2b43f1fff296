"""A notification ends one wait, also when it came before the wait."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from braidlog.client.consumer.wakeup import Wakeup
from braidlog.client.errors import ClosedError, RequestTimeout, WakeupError
from braidlog.client.network.engine import Engine
from braidlog.core.clock import SystemClock


def test_a_notification_before_the_wait_ends_it_once() -> None:
    wakeup = Wakeup(SystemClock())
    wakeup.notify()
    wakeup.notify()
    assert wakeup.wait(10.0)
    assert not wakeup.wait(0.0)


def test_a_notification_from_another_thread() -> None:
    wakeup = Wakeup(SystemClock())
    other = threading.Thread(target=wakeup.notify)
    other.start()
    assert wakeup.wait(10.0)
    other.join()


def test_a_wakeup_is_raised_once() -> None:
    wakeup = Wakeup(SystemClock())
    wakeup.wakeup()
    assert wakeup.wait(0.0)
    with pytest.raises(WakeupError):
        wakeup.check()
    wakeup.check()


async def _never() -> None:
    await asyncio.Event().wait()


async def _seven() -> int:
    return 7


def test_a_coroutine_is_waited_for_until_something_else_happens() -> None:
    engine = Engine("test")
    wakeup = Wakeup(SystemClock())
    try:
        assert wakeup.run(engine, _seven(), time.monotonic() + 10.0) == 7
        with pytest.raises(RequestTimeout, match="looking"):
            wakeup.run(engine, _never(), time.monotonic(), "looking")
        wakeup.wakeup()
        with pytest.raises(WakeupError):
            wakeup.run(engine, _never(), time.monotonic() + 10.0)
    finally:
        engine.close()
    with pytest.raises(ClosedError):
        wakeup.run(engine, _seven(), time.monotonic() + 10.0)
