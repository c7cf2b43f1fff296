"""The metrics and health pages of a real broker."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

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
    """Save those that have nothing to tell on a broker without topics, requests or ZooKeeper."""
    text = page(watched, "/metrics")
    silent = {
        name
        for name, metric in CATALOGUE.items()
        if set(metric.labels) & {"topic", "request", "error", "state"}
        or (metric.kind == HISTOGRAM and metric.labels)
        or "zookeeper" in name
    }
    missing = [name for name in CATALOGUE if name not in silent and f"# TYPE {name} " not in text]
    assert missing == []
