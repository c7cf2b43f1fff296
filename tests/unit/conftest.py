"""Unit tests may be coroutines."""

from __future__ import annotations

from support.coroutine_tests import pytest_pyfunc_call as pytest_pyfunc_call
