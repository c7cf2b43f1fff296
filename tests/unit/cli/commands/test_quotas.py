"""How quotas are written on the command line; setting them is in tests/e2e/test_cli_quotas.py."""

from __future__ import annotations

import argparse

import pytest

from braidlog.cli.commands.quotas import name_of, number
from braidlog.cli.options import byte_rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("500kB", 500_000),
        ("1MB", 1_000_000),
        ("1.5 mb/s", 1_500_000),
        ("2GB", 2_000_000_000),
        ("1KiB", 1024),
        ("1MiB/s", 1 << 20),
        ("1GiB", 1 << 30),
        ("10B", 10),
    ],
)
def test_rates(text: str, expected: int) -> None:
    assert byte_rate(text) == expected


@pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "1 MB a second", "nan", "1e6", "١MB"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 500000, 500kB, 1MB or 1MiB"):
        byte_rate(text)


def test_numbers_and_names() -> None:
    assert number("12.5") == 12.5
    for wrong in ("-1", "nan", "inf", "x"):
        with pytest.raises(argparse.ArgumentTypeError):
            number(wrong)
    assert name_of("ann") == "ann"
    with pytest.raises(argparse.ArgumentTypeError):
        name_of("")
