"""One real ZooKeeper for a test run; every cluster lives under a path of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from braidlog.testing.zookeeper import ZooKeeper, zookeeper_missing
from support.cluster import Cluster, start_cluster

_chroots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeper]:
    missing = zookeeper_missing()
    if missing:
        pytest.skip(missing)
    with ZooKeeper() as running:
        yield running


@pytest.fixture(scope="session")
def new_connect(zookeeper: ZooKeeper) -> Callable[[], str]:
    """A fresh `zookeeper.connect`."""
    return lambda: f"{zookeeper.connect}/cluster{next(_chroots)}"


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers, shared by the tests of a module."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with start_cluster(zookeeper, directory, settings={"zookeeper.connect": new_connect()}) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last lines of every broker."""
    report = yield
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(running, Cluster):
        report.sections.append(("brokers", running.logs(25)))
    return report
