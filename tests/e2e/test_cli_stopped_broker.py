"""One broker of three is gone: commands that need it say that it is unreachable, the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.eventually import eventually
from support.kafka_cluster import KafkaCluster, start_kafka_cluster

GONE = 2


@pytest.fixture
def cluster(apache_kafka: Path) -> Iterator[KafkaCluster]:
    with start_kafka_cluster() as running:
        yield running


def test_a_broker_of_several_is_stopped(cluster: KafkaCluster, cli_of: Any, topic: str) -> None:
    cli = cli_of(None)
    cli.environment["BRAIDLOG_BOOTSTRAP"] = cluster.bootstrap
    cli("topics", "create", topic, "--partitions", "3", "--replication-factor", "3").succeeded()
    everybody = cli("brokers", "--output", "json").succeeded().json
    assert [(row["broker"], row["reachable"]) for row in everybody] == [(1, True), (2, True), (3, True)]
    assert sum(row["replicas"] for row in cli("log-dirs", "--output", "json").succeeded().json) == 9

    cluster.kill(GONE)
    # At first metadata still tells of it, and then no longer.
    reported = cli("configs", "describe", "--broker", str(GONE), "--request-timeout", "5")
    assert reported.code == 1
    assert "Traceback" not in reported.err
    assert "there is no broker" not in reported.err
    eventually(lambda: cli("brokers", "--output", "json").json[1]["address"] is None)

    done = cli("brokers", "--output", "json")
    assert done.code == 1
    assert [(row["broker"], row["reachable"]) for row in done.json] == [(1, True), (2, False), (3, True)]
    assert f"broker {GONE} is unreachable: it holds replicas, but is not up (up: 1, 3)" in done.err
    cli("configs", "describe", "--broker", str(GONE)).failed(f"broker {GONE} is unreachable")
    cli("log-dirs", "--broker", str(GONE)).failed(f"broker {GONE} is unreachable")
    cli("brokers", "4711").failed("there is no broker 4711 in this cluster; it has 1, 3")
    assert len(cli("log-dirs", "--output", "json").succeeded().json) == 2
    assert len(cli("topics", "offsets", topic, "--output", "json").succeeded().json) == 3
