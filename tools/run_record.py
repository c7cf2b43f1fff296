"""A pytest plugin that writes down how a run went: `pytest -p tools.run_record --run-record FILE`.

The file is written when the run is over, by the process that the reports of all workers come to. A run that died has
no file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

# Of a failure's message one line of this length says what it was; the run's own output has the rest.
MESSAGE_LIMIT = 200


class Failure(NamedTuple):
    test: str
    message: str
    # Why a second run would prove nothing; empty where it may be run again.
    final: str = ""


class RunRecord(NamedTuple):
    # Every test that was chosen has been run: nothing stopped the run early, and every file could be collected.
    complete: bool
    # The files, directories and tests that it was told to run.
    given: list[str]
    failures: list[Failure]
    passed: list[str]

    @classmethod
    def read(cls, path: Path) -> RunRecord | None:
        """None of a run that wrote nothing: it died."""
        if not path.exists():
            return None
        told = json.loads(path.read_text())
        return cls(**(told | {"failures": [Failure(**each) for each in told["failures"]]}))

    def write(self, path: Path) -> None:
        failures = [each._asdict() for each in self.failures]
        path.write_text(json.dumps(self._asdict() | {"failures": failures}))


class Recorder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._failures: dict[str, Failure] = {}
        self._passed: list[str] = []
        self._collected = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._collected &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            failure = Failure(report.nodeid, message_of(report), why_final(report))
            # A test may fail and then fail to clean up: the weightier of the two counts.
            if failure.final or report.nodeid not in self._failures:
                self._failures[report.nodeid] = failure
        elif report.passed and report.when == "call":
            self._passed.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        complete = self._collected and not session.shouldstop and not session.shouldfail
        given = session.config.option.file_or_dir
        RunRecord(complete, given, list(self._failures.values()), self._passed).write(self._path)


def why_final(report: pytest.TestReport) -> str:
    if "never_repeated" in report.keywords:
        return "it is marked never_repeated"
    if report.when == "teardown":
        return "what failed is the clean-up, which may be that of other tests, too"
    if report.when not in ("setup", "call"):
        return "its process crashed"
    return ""


def message_of(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else report.longreprtext).strip().splitlines() or ["no message"]
    # Of a traceback in words the last line says what was raised, of a crash's message the first.
    line = str(lines[0] if crash is not None else lines[-1])
    return line if len(line) <= MESSAGE_LIMIT else f"{line[:MESSAGE_LIMIT]}…"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-record", metavar="FILE", help="write down which tests passed and failed")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--run-record")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path).absolute()))
