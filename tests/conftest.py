"""Fixtures that give a test a running broker.

`BRAIDLOG_TARGET=kafka` runs every interop scenario against Apache Kafka 3.9 instead: a scenario that fails
there is wrong about Kafka.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from tools.peers.kafka import VERSION, kafka_libs, older_kafka_libs
from tools.peers.kcat import kcat_path
from tools.peers.maven import PeerMissing

pytest.register_assert_rewrite("support")

# How long an example takes says more about what else the machine does than about braidlog; see `bench/` for that.
hypothesis_settings.register_profile("braidlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("braidlog")

from support.broker import BRAIDLOG, Broker, StartBroker, start_target  # noqa: E402
from support.never_repeated import mark, mark_judged  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    # Warnings are errors, but the clients' own old-fashioned calls are not ours to mend.
    callers = r"(kafka|aiokafka|importlib\.resources)\..*"
    config.addinivalue_line("filterwarnings", f"ignore::DeprecationWarning:{callers}")


def pytest_itemcollected(item: pytest.Item) -> None:
    mark(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last lines of the shared broker's log."""
    report = yield
    if report.failed:
        mark_judged(report, call)
    running = getattr(item, "funcargs", {}).get("broker")
    if report.failed and isinstance(running, Broker):
        report.sections.append((f"log of {running.kind}", running.process.log(30)))
    return report


@pytest.fixture(scope="session")
def target_kind() -> str:
    return os.environ.get("BRAIDLOG_TARGET", BRAIDLOG)


@pytest.fixture(scope="session")
def broker(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with default settings, shared by all tests of this run; every test uses its own topics."""
    with start_target(target_kind, tmp_path_factory.mktemp("broker") / "data") as running:
        yield running
        assert running.process.returncode is None, f"the broker died:\n{running.log()}"


@pytest.fixture
def start_broker(target_kind: str, tmp_path: Path) -> Iterator[StartBroker]:
    """Starts a broker of its own for a test: `start_broker({"auto.create.topics.enable": "false"})`."""
    with ExitStack() as running:
        numbers = itertools.count()

        def start(settings: Mapping[str, str] | None = None, data_dir: Path | None = None) -> Broker:
            place = data_dir if data_dir is not None else tmp_path / f"broker-{next(numbers)}"
            return running.enter_context(start_target(target_kind, place, settings))

        yield start


_TOPICS = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name = "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in request.node.name)
    return f"{name[:180]}-{os.getpid()}-{next(_TOPICS)}"


@pytest.fixture(scope="session")
def apache_kafka() -> Path:
    """Apache Kafka's jars; the test is skipped when they cannot be had."""
    try:
        return kafka_libs()
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def kafka_libs_of() -> Callable[[str], Path]:
    """The jars of a Kafka by its version; the test is skipped when they cannot be had."""

    def libs(version: str) -> Path:
        try:
            return kafka_libs() if version == VERSION else older_kafka_libs(version)
        except PeerMissing as missing:
            pytest.skip(str(missing))

    return libs


@pytest.fixture(scope="session")
def kcat() -> str:
    try:
        return kcat_path()
    except PeerMissing as missing:
        pytest.skip(str(missing))
