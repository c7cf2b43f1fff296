"""The metrics and health pages of a real broker."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from braidlog.client import Producer as OurProducer
from braidlog.client.admin import Admin, NewTopic, QuotaEntity
from braidlog.client.errors import AuthenticationFailed
from braidlog.metric_names import CATALOGUE, HISTOGRAM
from support.broker import Broker, start_braidlog


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Broker]:
    with start_braidlog(tmp_path / "data", {"braidlog.http.listen": "127.0.0.1:0"}) as broker:
        yield broker


def page(broker: Broker, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}{path}", timeout=20) as answer:
        body: bytes = answer.read()
    return body.decode()


def test_the_pages_tell_what_the_broker_does(watched: Broker) -> None:
    producer = Producer({"bootstrap.servers": watched.bootstrap})
    for number in range(10):
        producer.produce("orders", value=b"x" * 100, partition=0, key=str(number))
    assert producer.flush(20) == 0
    text = page(watched, "/metrics")
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 10\n' in text
    assert 'kafka_log_log_logendoffset{topic="orders",partition="0"} 10\n' in text
    assert re.search(r'kafka_network_requestmetrics_totaltimems_count\{request="Produce"\} [1-9]', text)
    assert page(watched, "/healthz") == "ok\n"
    assert page(watched, "/readyz") == "ready\n"


def test_groups_and_transactions_are_counted(watched: Broker) -> None:
    producer = Producer({"bootstrap.servers": watched.bootstrap, "transactional.id": "teller"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", value=b"x")
    producer.commit_transaction(30)
    consumer = Consumer({"bootstrap.servers": watched.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()
    text = page(watched, "/metrics")
    assert 'kafka_coordinator_group_groupmetadatamanager_numgroups{protocol="classic",state="Empty"} 1\n' in text
    assert "kafka_coordinator_group_groupmetadatamanager_numoffsets 1\n" in text
    assert 'braidlog_transactional_ids{state="CompleteCommit"} 1\n' in text
    assert 'braidlog_coordinator_partitions_loading{topic="__consumer_offsets"} 0\n' in text


def test_every_metric_of_the_catalogue_is_served(watched: Broker) -> None:
    """Save those with nothing to tell on a broker without topics, requests, logins, ACLs, quotas or a cluster."""
    text = page(watched, "/metrics")
    silent = {
        name
        for name, metric in CATALOGUE.items()
        if set(metric.labels) & {"topic", "request", "error", "state", "client_id", "leader"}
        or (metric.kind == HISTOGRAM and metric.labels)
        or "zookeeper" in name
        or "authentication" in name
        or "authorizer" in name
    }
    missing = [name for name in CATALOGUE if name not in silent and f"# TYPE {name} " not in text]
    assert missing == []


def test_quotas_are_shown_for_those_who_use_them(tmp_path: Path) -> None:
    with (
        start_braidlog(tmp_path / "data", {"braidlog.http.listen": "127.0.0.1:0"}) as broker,
        Admin(bootstrap_servers=broker.bootstrap, client_id="admin") as admin,
        OurProducer(bootstrap_servers=broker.bootstrap, client_id="busy") as producer,
    ):
        admin.create_topics([NewTopic("t", partitions=1)]).raise_for_errors()
        quotas: dict[str, float | None] = {"producer_byte_rate": 1000.0, "request_percentage": 1_000_000.0}
        admin.alter_client_quotas({QuotaEntity(client_id="busy"): quotas}).raise_for_errors()
        producer.send("t", bytes(50_000)).result(30)
        text = page(broker, "/metrics")
        values = {
            name: float(line.rpartition(" ")[2])
            for name in ("produce_byte_rate", "produce_throttle_time_ms_total", "request_request_time")
            for line in text.splitlines()
            if line.startswith(f'kafka_server_{name}{{user="",client_id="busy"}}')
        }
        assert 4_000 < values["produce_byte_rate"] <= 6_000
        assert values["produce_throttle_time_ms_total"] > 10_000
        assert values["request_request_time"] > 0
        assert "braidlog_throttled_connections 1" in text
        admin.alter_client_quotas({QuotaEntity(client_id="busy"): dict.fromkeys(quotas)}).raise_for_errors()


def test_logins_are_counted_by_listener(tmp_path: Path) -> None:
    settings = {
        "braidlog.http.listen": "127.0.0.1:0",
        "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        ),
    }
    with start_braidlog(tmp_path / "data", settings) as broker:
        guarded = broker.process.wait_for_line(r"CLIENTS://(\S+) after")[1]
        for password in ("secret", "wrong"):
            login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
            with (
                suppress(AuthenticationFailed),
                Admin(bootstrap_servers=guarded, sasl_password=password, **login) as admin,
            ):
                admin.describe_cluster()
        text = page(broker, "/metrics")
    counted = dict(
        re.findall(r"^kafka_server_socket_server_metrics_(\w+_authentication)_total\{.*CLIENTS.*\} (\d+)$", text, re.M)
    )
    assert int(counted["successful_authentication"]) >= 1
    assert int(counted["failed_authentication"]) >= 1
