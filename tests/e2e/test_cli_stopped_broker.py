"""One broker of three is gone: commands that need it say that it is unreachable, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from braidlog.testing import Cluster
from support.cluster import BASE_SETTINGS
from support.eventually import eventually
from support.kafka_cluster import NODES, start_kafka_cluster

# Long enough for a busy machine: nobody but the killed broker loses its session.
SETTINGS = {**BASE_SETTINGS, "zookeeper.session.timeout.ms": "10000"}


class Three(NamedTuple):
    bootstrap: str
    # The second of them is killed.
    ids: tuple[int, int, int]
    kill: Callable[[int], None]


@pytest.fixture(params=["braidlog", pytest.param("kafka", marks=pytest.mark.peer)])
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Three]:
    if request.param == "kafka":
        request.getfixturevalue("apache_kafka")
        with start_kafka_cluster() as kafka:
            yield Three(kafka.bootstrap, NODES, kafka.kill)
    else:
        with Cluster(settings=SETTINGS, directory=tmp_path / "cluster") as ours:
            yield Three(ours.bootstrap_servers, (0, 1, 2), lambda broker: ours.brokers[broker].kill())


def test_a_broker_of_several_is_stopped(three: Three, cli_of: Any, topic: str) -> None:
    first, gone, last = three.ids
    cli = cli_of(None)
    cli.environment["BRAIDLOG_BOOTSTRAP"] = three.bootstrap
    cli("topics", "create", topic, "--partitions", "3", "--replication-factor", "3").succeeded()
    everybody = cli("brokers", "--output", "json").succeeded().json
    assert [(row["broker"], row["reachable"]) for row in everybody] == [(first, True), (gone, True), (last, True)]
    assert sum(row["replicas"] for row in cli("log-dirs", "--output", "json").succeeded().json) == 9

    three.kill(gone)
    # At first metadata still tells of it, and then no longer.
    reported = cli("configs", "describe", "--broker", str(gone), "--request-timeout", "5")
    assert reported.code == 1
    assert "Traceback" not in reported.err
    assert "there is no broker" not in reported.err
    eventually(lambda: cli("brokers", "--output", "json").json[1]["address"] is None, 60)

    done = cli("brokers", "--output", "json")
    assert done.code == 1
    assert [(row["broker"], row["reachable"]) for row in done.json] == [(first, True), (gone, False), (last, True)]
    assert f"broker {gone} is unreachable: it holds replicas, but is not up (up: {first}, {last})" in done.err
    cli("configs", "describe", "--broker", str(gone)).failed(f"broker {gone} is unreachable")
    cli("log-dirs", "--broker", str(gone)).failed(f"broker {gone} is unreachable")
    cli("brokers", "4711").failed(f"there is no broker 4711 in this cluster; it has {first}, {last}")
    assert len(cli("log-dirs", "--output", "json").succeeded().json) == 2
    assert len(cli("topics", "offsets", topic, "--output", "json").succeeded().json) == 3
