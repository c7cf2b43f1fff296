"""Programs that run scenarios and say "name PASS" or "name FAIL why" for each, one line a scenario."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

ENDS_WITHIN_S = 280.0


def outcomes(command: Sequence[str]) -> dict[str, str]:
    """What each scenario said, by its name."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    # What the client logged explains a failure; it belongs to no single scenario.
    logged = f"\n{done.stderr[-8000:]}"
    return {name: outcome if outcome == "PASS" else outcome + logged for name, outcome in said.items()}
