"""How levels are written on the command line, and what is shown; the rest is in tests/cluster/test_features.py."""

from __future__ import annotations

import argparse

import pytest

from braidlog.cli.commands.features import level_of, rows_of
from braidlog.client.admin.features import Features, Levels


def test_a_level_is_written_as_name_and_number() -> None:
    assert level_of("group.version=1") == ("group.version", 1)


@pytest.mark.parametrize("text", ["group.version", "group.version=", "=1", "a=-1", "a=x", "a=99999", "a=" + "9" * 5000])
def test_what_is_no_level(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"such as group\.version=1"):
        level_of(text)


def test_supported_and_finalised_features_are_shown_together() -> None:
    features = Features({"b": Levels(2, 2), "c": Levels(1, 1)}, {"a": Levels(0, 1), "b": Levels(0, 3)}, 4)
    assert rows_of(features) == [
        {"feature": "a", "supported_min": 0, "supported_max": 1, "finalized": 0, "epoch": 4},
        {"feature": "b", "supported_min": 0, "supported_max": 3, "finalized": 2, "epoch": 4},
        {"feature": "c", "supported_min": None, "supported_max": None, "finalized": 1, "epoch": 4},
    ]
