"""Tests that are coroutines run in a loop of their own, within a deadline."""

from __future__ import annotations

import asyncio
import inspect

import pytest

DEADLINE_S = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    asyncio.run(asyncio.wait_for(test(**arguments), DEADLINE_S))
    return True
