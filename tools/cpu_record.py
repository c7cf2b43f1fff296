"""A pytest plugin that writes down what each test costs: `pytest -p tools.cpu_record --cpu-record FILE`.

In seconds of CPU of the test's process and of all that it started, running or ended: what a clock on the wall shows
depends on what else the machine does. A fixture that tests share is paid for by the first that asks for it, and a
broker that they share by whoever makes it work. The costliest files and tests come first.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_PROPERTY = "cpu_s"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Of /proc/<pid>/stat what follows the name: utime, stime, and both of the children that have been waited for.
_CPU_FIELDS = slice(11, 15)


class Cost(NamedTuple):
    test: str
    setup_s: float = 0.0
    call_s: float = 0.0
    teardown_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.setup_s + self.call_s + self.teardown_s


def cpu_s(process: int) -> float:
    """What a process has used until now, with all that descend from it."""
    total = 0.0
    for each in (process, *_descendants(process)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile: it is in its parent's sum, or was too short to matter
        total += sum(map(int, fields[_CPU_FIELDS]))
    return total / _TICKS_PER_S


def _descendants(process: int) -> Iterator[int]:
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from _descendants(child)


class Meter:
    """In the process that runs tests: tells each phase's cost with its report."""

    def __init__(self) -> None:
        self._last = cpu_s(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        # Less than before where a child ended while its siblings were listed, which leaves some of them out.
        now = max(cpu_s(os.getpid()), self._last)
        report.user_properties.append((_PROPERTY, now - self._last))
        self._last = now
        return report


class CpuRecorder:
    """In the process that the reports of all workers come to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._costs: dict[str, Cost] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY:
                cost = self._costs.get(report.nodeid, Cost(report.nodeid))
                self._costs[report.nodeid] = cost._replace(**{f"{report.when}_s": value})  # type: ignore[arg-type]

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("\n".join(lines(list(self._costs.values()))) + "\n")


def lines(costs: list[Cost]) -> Iterator[str]:
    files: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for cost in costs:
        file = cost.test.partition("::")[0]
        files[file] += cost.total_s
        counts[file] += 1
    yield f"{sum(files.values()):9.2f}  {len(costs)} tests"
    yield ""
    for file, total_s in sorted(files.items(), key=lambda item: -item[1]):
        yield f"{total_s:9.2f}  {file} ({counts[file]})"
    yield ""
    yield "    setup      call  teardown"
    for cost in sorted(costs, key=lambda each: -each.total_s):
        yield f"{cost.setup_s:9.2f} {cost.call_s:9.2f} {cost.teardown_s:9.2f}  {cost.test}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-record", metavar="FILE", help="write down what each test costs, in seconds of CPU")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--cpu-record")
    if path is None:
        return
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CpuRecorder(Path(path).absolute()))
