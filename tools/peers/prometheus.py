"""Prometheus and its promtool, when the machine has them."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.peers.kafka import free_port
from tools.peers.maven import PeerMissing
from tools.peers.process import LoggedProcess


def _path(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise PeerMissing(f"{program} is not installed (on Debian: apt-get install prometheus)")
    return found


def run_promtool(arguments: Sequence[str], timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run it to its end; a non-zero exit is the caller's to judge."""
    return subprocess.run([_path("promtool"), *arguments], capture_output=True, text=True, timeout=timeout_s)


class Prometheus(LoggedProcess):
    """A server on loopback with a configuration and a data directory of its own."""

    def __init__(self, config: Path, data: Path) -> None:
        self.port = free_port()
        super().__init__(
            "prometheus",
            [
                _path("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
        )
        self.wait_for_line("Server is ready to receive web requests")

    def query(self, expr: str) -> list[dict[str, Any]]:
        """An instant query; raises urllib's HTTPError where it is refused."""
        return list(self._get("query", query=expr)["result"])

    def alerts(self) -> dict[str, set[str]]:
        """By name the states of alerts: pending, firing."""
        found: dict[str, set[str]] = {}
        for alert in self._get("alerts")["alerts"]:
            found.setdefault(alert["labels"]["alertname"], set()).add(alert["state"])
        return found

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]
