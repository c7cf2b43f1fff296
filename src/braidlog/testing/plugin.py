"""The pytest plugin: fixtures that give a test a real broker, or a cluster of three.

    def test_round_trip(braidlog_broker):
        topic = braidlog_broker.create_topic(partitions=3)
        ...  # any Kafka client, at braidlog_broker.bootstrap_servers

Every pytest run with braidlog installed imports this module: it imports nothing else before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from braidlog.local_cluster.zookeeper import ZooKeeper
    from braidlog.testing.cluster import Cluster
    from braidlog.testing.running_broker import Broker, Kind

_KINDS: Final = ("thread", "process")
_LOG_LINES: Final = 60
_SECURITY: Final = ("tls", "users", "mechanism")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("braidlog", "brokers for tests")
    group.addoption(
        "--braidlog-kind",
        choices=_KINDS,
        help="run brokers of the braidlog fixtures in a thread of the test process or in a process (default: thread)",
    )
    group.addoption(
        "--braidlog-set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of these brokers, by Kafka's name; may be repeated",
    )
    parser.addini("braidlog_kind", "as --braidlog-kind", default="thread")
    parser.addini("braidlog_settings", "settings of brokers, one KEY=VALUE a line", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "braidlog(kind='thread' | 'process', settings={...}, tls=True | 'mutual', users={...}, mechanism='...'): how "
        "braidlog_fresh_broker is run for this test",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last lines that its brokers logged."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if _has_brokers(value):
                text = value.log(_LOG_LINES)
                if text:
                    report.sections.append((f"log of {name}", text))
    return report


def _has_brokers(value: object) -> bool:
    import sys

    module = sys.modules.get("braidlog.testing.client_factory")
    return module is not None and isinstance(value, module.ClientFactory)


@pytest.fixture(scope="session")
def braidlog_settings(pytestconfig: pytest.Config) -> Mapping[str, object]:
    """Settings of the brokers; a project overrides this fixture, or the ini option of the same name."""
    lines = [*pytestconfig.getini("braidlog_settings"), *pytestconfig.getoption("--braidlog-set")]
    settings: dict[str, object] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"braidlog setting {line!r}: write it as KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def braidlog_kind(pytestconfig: pytest.Config) -> str:
    """Where brokers run: "thread" or "process"."""
    kind = pytestconfig.getoption("--braidlog-kind") or pytestconfig.getini("braidlog_kind")
    if kind not in _KINDS:
        raise pytest.UsageError(f"braidlog_kind is {kind!r}; there are {' and '.join(_KINDS)}")
    return str(kind)


@pytest.fixture(scope="session")
def braidlog_broker(
    braidlog_kind: Kind, braidlog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """One broker for the whole run; tests keep apart by using topics and groups of their own."""
    data_dir = tmp_path_factory.mktemp("braidlog") / "data"
    with _broker(braidlog_kind, braidlog_settings, data_dir) as broker:
        yield broker


@pytest.fixture
def braidlog_fresh_broker(
    request: pytest.FixtureRequest,
    braidlog_kind: Kind,
    braidlog_settings: Mapping[str, object],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Broker]:
    """A broker for this test alone: empty, and free to be stopped or killed."""
    marker = request.node.get_closest_marker("braidlog")
    asked: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    kind = cast("Kind", asked.pop("kind", braidlog_kind))
    settings = {**braidlog_settings, **asked.pop("settings", {})}
    if not asked.keys() <= set(_SECURITY) or (marker is not None and marker.args):
        raise pytest.UsageError(
            f"@pytest.mark.braidlog takes kind=... and settings={{...}}, and {', '.join(_SECURITY)}; nothing else"
        )
    with _broker(kind, settings, tmp_path_factory.mktemp("braidlog") / "data", **asked) as broker:
        yield broker


@pytest.fixture(scope="session")
def braidlog_users() -> Mapping[str, str]:
    """Who may log in to braidlog_secured_broker, passwords by name; a project overrides this fixture."""
    return {"alice": "alice's password", "bob": "bob's password"}


@pytest.fixture(scope="session")
def braidlog_secured_broker(
    braidlog_kind: Kind,
    braidlog_settings: Mapping[str, object],
    braidlog_users: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Broker]:
    """One broker for the whole run that speaks TLS and has users, who log in with SCRAM-SHA-512."""
    data_dir = tmp_path_factory.mktemp("braidlog-secured") / "data"
    with _broker(braidlog_kind, braidlog_settings, data_dir, tls=True, users=braidlog_users) as broker:
        yield broker


@pytest.fixture
def braidlog_topic(request: pytest.FixtureRequest, braidlog_broker: Broker) -> Iterator[str]:
    """A new topic of one partition on the shared broker, named after the test and deleted after it."""
    name = braidlog_broker.create_topic(braidlog_broker.unique_topic(request.node.name))
    yield name
    if braidlog_broker.is_running:
        braidlog_broker.delete_topic(name)


def _broker(kind: Kind, settings: Mapping[str, object], data_dir: Any, **security: Any) -> Broker:
    from braidlog.testing.running_broker import Broker

    return Broker(kind, settings=settings, data_dir=data_dir, **security)


@pytest.fixture(scope="session")
def braidlog_zookeeper() -> Iterator[ZooKeeper]:
    """One ZooKeeper server for the whole run; it needs Java, and the jar that comes with PySpark or Debian."""
    from braidlog.local_cluster.zookeeper import ZooKeeper

    with ZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture(scope="session")
def braidlog_cluster(
    braidlog_zookeeper: ZooKeeper, braidlog_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers for the whole run, each a process; a test that ends one of them starts it again."""
    from braidlog.testing.cluster import Cluster

    directory = tmp_path_factory.mktemp("braidlog-cluster")
    with Cluster(
        settings=braidlog_settings, directory=directory, zookeeper=braidlog_zookeeper, chroot="/shared"
    ) as made:
        yield made
