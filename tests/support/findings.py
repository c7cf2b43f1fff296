"""What a check of the doctor found."""

from __future__ import annotations

from braidlog.cli.checks.finding import OK, Finding


def status(finding: Finding) -> str:
    assert (finding.status == OK) == (finding.advice == ""), "what is not ok comes with advice"
    return finding.status
