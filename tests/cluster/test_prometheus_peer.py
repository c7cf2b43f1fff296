"""deploy/prometheus and deploy/grafana with a real Prometheus over a real cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.grafana_dashboard import dashboard
from tools.peers.maven import PeerMissing
from tools.peers.prometheus import Prometheus, run_promtool

from braidlog import Consumer, Producer
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.metric_names import CATALOGUE
from braidlog.testing.cluster import Cluster
from support import confluent
from support.cluster import start_cluster
from support.eventually import eventually
from support.ports import lasting_port

pytestmark = pytest.mark.peer

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus/braidlog.rules.yml"

# Panels that have nothing to show while all is well, or on a cluster without transactions.
QUIET = {
    "Answers with an error",
    "Refused connections and logins",
    "Time that replicas are out of sync",
    "Transactional ids",
}


@pytest.fixture(scope="module", autouse=True)
def has_prometheus() -> None:
    try:
        run_promtool(["--version"])
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def watched(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Prometheus]]:
    """Three brokers with a topic that is written and read, and a Prometheus that looks every second."""
    directory = tmp_path_factory.mktemp("watched")
    settings = {
        "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
    }
    cluster = start_cluster(zookeeper, directory / "cluster", settings={**settings, "zookeeper.connect": new_connect()})
    for broker in cluster.brokers:
        # The same after a restart, as Prometheus is told it once.
        broker.settings["braidlog.http.listen"] = f"127.0.0.1:{lasting_port()}"
    with cluster:
        confluent.create_topic(cluster.bootstrap_servers, "orders", 6)
        config = directory / "prometheus.yml"
        config.write_text(quick_config(cluster))
        (directory / RULES.name).write_text(without_waiting(RULES.read_text()))
        with Prometheus(config, directory / "prometheus") as prometheus:
            traffic(cluster)
            # A rate takes two looks.
            eventually(lambda: total(prometheus, "count(up == 1 and up offset 10s == 1)") == 3, 60)
            traffic(cluster)
            yield cluster, prometheus


def quick_config(cluster: Cluster) -> str:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [broker.http_address for broker in cluster.brokers]}]
    return str(yaml.safe_dump(config))


def without_waiting(rules: str) -> str:
    """As they are, but for the minutes that an alert waits before it fires."""
    found: dict[str, Any] = yaml.safe_load(rules)
    for group in found["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return str(yaml.safe_dump(found))


def traffic(cluster: Cluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(300):
            producer.send("orders", f"record {number}", partition=number % 6)
        producer.flush()
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        seen: list[object] = []

        def read() -> bool:
            seen.extend(consumer.poll(1.0))
            return len(seen) >= 300

        eventually(read, 60)
        consumer.commit()


def total(prometheus: Prometheus, expr: str) -> float:
    (sample,) = prometheus.query(expr) or [{"value": [0, "0"]}]
    return float(sample["value"][1])


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    for arguments in (
        ["check", "rules", str(RULES)],
        ["check", "config", str(DEPLOY / "prometheus/prometheus.yml")],
    ):
        done = run_promtool(arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "SUCCESS" in done.stdout


def test_alerts_wait_as_long_as_they_should(tmp_path: Path) -> None:
    """Prometheus' own tests of rules: a restart of a few minutes wakes nobody, five of them do."""
    trouble = {
        "series": 'kafka_server_replicamanager_underreplicatedpartitions{job="braidlog",instance="a"}',
        "values": "0 2x20",
    }
    labels = {"severity": "warning", "job": "braidlog", "instance": "a"}
    said = {
        "summary": "2 partitions led by a have replicas out of sync",
        "description": "`braidlog doctor` says which follower lags, by how much, since when and why.",
    }
    alert = {"alertname": "BraidlogUnderReplicated"}
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [trouble],
                "alert_rule_test": [
                    {**alert, "eval_time": "5m", "exp_alerts": []},
                    {**alert, "eval_time": "7m", "exp_alerts": [{"exp_labels": labels, "exp_annotations": said}]},
                ],
            },
            {
                "interval": "1m",
                "input_series": [
                    {"series": 'braidlog_time_seconds{job="braidlog",instance="a"}', "values": "0+60x20"},
                    {"series": 'braidlog_time_seconds{job="braidlog",instance="b"}', "values": "9+60x20"},
                ],
                "alert_rule_test": [
                    {
                        "alertname": "BraidlogClocksApart",
                        "eval_time": "10m",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "warning", "job": "braidlog"},
                                "exp_annotations": {
                                    "summary": "The clocks of brokers are 9 s apart",
                                    "description": "Timestamps, retention and logins by token depend on them: keep "
                                    "them by NTP.",
                                },
                            }
                        ],
                    }
                ],
            },
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(tests))
    done = run_promtool(["test", "rules", str(file)])
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_knows_every_number_by_its_name(watched: tuple[Cluster, Prometheus]) -> None:
    _, prometheus = watched
    for name, metric in CATALOGUE.items():
        for sample in prometheus.query(name):
            labels = set(sample["metric"]) - {"__name__", "instance", "job"}
            assert labels == set(metric.labels), name


def test_every_panel_has_something_to_show(watched: tuple[Cluster, Prometheus]) -> None:
    _, prometheus = watched
    empty: list[str] = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expr = target["expr"].replace("$__rate_interval", "30s").replace("$job", "braidlog")
            if not prometheus.query(expr.replace("$instance", ".*")):
                empty.append(panel["title"])
    assert set(empty) <= QUIET, empty
    for variable in dashboard()["templating"]["list"][1:]:
        selector = re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"])
        assert selector is not None
        assert len(prometheus.query(selector[1].replace("$job", "braidlog"))) == 3


def test_alerts_fire_when_a_broker_is_stopped_and_not_before(watched: tuple[Cluster, Prometheus]) -> None:
    cluster, prometheus = watched
    # What this machine does to a broker is no matter here.
    of_the_machine = {"BraidlogEventLoopStalled", "BraidlogBusy", "BraidlogFailedIsrUpdates", "BraidlogIsrFlapping"}
    eventually(lambda: set(prometheus.alerts()) <= of_the_machine, 60)
    controller = next(
        broker
        for broker in cluster.brokers
        if prometheus.query(
            f'kafka_controller_kafkacontroller_activecontrollercount{{instance="{broker.http_address}"}} == 1'
        )
    )
    stopped = next(broker for broker in cluster.brokers if broker is not controller)
    stopped.stop()
    eventually(lambda: prometheus.alerts().get("BraidlogBrokerDown") == {"firing"}, 60)
    eventually(lambda: prometheus.alerts().get("BraidlogUnderReplicated") == {"firing"}, 60)
    (behind, *_) = prometheus.query("max by (broker) (braidlog_replica_behind_seconds)")
    assert behind["metric"] == {"broker": str(stopped.id)}
    stopped.start()
    eventually(lambda: set(prometheus.alerts()) <= of_the_machine, 120)
