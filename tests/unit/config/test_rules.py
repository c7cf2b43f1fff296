from __future__ import annotations

import math

from braidlog.config.rules import PYTHON_CALLABLE, at_least, between, each_of, one_of


def test_rules() -> None:
    assert at_least(1).problem(1) is None
    assert at_least(1).problem(0) == "expected 1 or more"
    assert between(0, 1).problem(math.nan) == "expected 0 to 1"
    assert at_least(1).problem(None) == "a value is needed: 1 or more"
    assert one_of("A", any_case=True).problem("a") is None
    assert one_of("A").problem("a") == "expected one of A"
    assert each_of("a", "b").problem(("a", "")) == "an empty entry is not known: expected any of a, b"


def test_a_callable_is_named_by_its_module() -> None:
    for good in ("", None, "policies:check", "my.policies:Check", "a_1.b:Outer.Inner"):
        assert PYTHON_CALLABLE.problem(good) is None
    for bad in ("com.example.Policy", "check", ":check", "my.policies:", "a:b:c", "a b:c", "1a:b", "a..b:c", "a:b()"):
        assert "package.module:object" in (PYTHON_CALLABLE.problem(bad) or "")
