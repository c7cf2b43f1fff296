from __future__ import annotations

from braidlog.cli.checks.finding import listing


def test_long_lists_are_cut() -> None:
    assert listing("abc") == "a, b, c"
    assert listing("abcdefgh", 3) == "a, b, c and 5 more"
