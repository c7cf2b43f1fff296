"""Parameters of a test that repeat each other: some are for every run, the others for `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet


def some(names: Iterable[str], *quick: str) -> list[ParameterSet]:
    """All of `names`; those that are not `quick` are marked long."""
    found = [pytest.param(name, marks=[] if name in quick else [pytest.mark.long]) for name in names]
    missing = set(quick) - {str(each.values[0]) for each in found}
    if missing:
        raise ValueError(f"there is no such parameter: {sorted(missing)}")
    return found
