"""The command line, asked about a cluster, with answers that a test can look at."""

from __future__ import annotations

import json
from typing import Any

import pytest

from braidlog.cli.program import main
from braidlog.testing.cluster import Cluster


class Commands:
    """Commands in this process, on one cluster."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self._capsys = capsys

    def __call__(self, *words: str, code: int | None = 0) -> Any:
        """What it prints as JSON."""
        self._capsys.readouterr()
        found = main([*words, "--bootstrap", self.cluster.bootstrap_servers, "--output", "json"])
        said = self._capsys.readouterr()
        assert code is None or found == code, said.err
        return json.loads(said.out) if said.out.startswith(("[", "{")) else said.out

    def findings(self) -> dict[str, list[dict[str, str]]]:
        """The doctor's, by check."""
        by_check: dict[str, list[dict[str, str]]] = {}
        for each in self("doctor", code=None):
            by_check.setdefault(each["check"], []).append(each)
        return by_check
