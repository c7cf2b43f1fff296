"""Notifications are heard once, also those from before the wait."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from braidlog.client.consumer.wakeup import Wakeup
from braidlog.client.errors import ClosedError, RequestTimeout, WakeupError
from braidlog.client.network.engine import Engine


def test_a_ring_before_the_wait_is_heard_once() -> None:
    bell = Wakeup()
    bell.notify()
    bell.notify()
    assert bell.wait(10.0)
    assert not bell.wait(0.0)


def test_a_ring_from_another_thread() -> None:
    bell = Wakeup()
    other = threading.Thread(target=bell.notify)
    other.start()
    assert bell.wait(10.0)
    other.join()


def test_a_wakeup_is_told_once() -> None:
    bell = Wakeup()
    bell.wakeup()
    assert bell.wait(0.0)
    with pytest.raises(WakeupError):
        bell.check()
    bell.check()


async def _never() -> None:
    await asyncio.Event().wait()


async def _seven() -> int:
    return 7


def test_a_coroutine_is_waited_for_until_something_else_happens() -> None:
    engine = Engine("test")
    bell = Wakeup()
    try:
        assert bell.run(engine, _seven(), time.monotonic() + 10.0) == 7
        with pytest.raises(RequestTimeout, match="looking"):
            bell.run(engine, _never(), time.monotonic(), "looking")
        bell.wakeup()
        with pytest.raises(WakeupError):
            bell.run(engine, _never(), time.monotonic() + 10.0)
    finally:
        engine.close()
    with pytest.raises(ClosedError):
        bell.run(engine, _seven(), time.monotonic() + 10.0)
