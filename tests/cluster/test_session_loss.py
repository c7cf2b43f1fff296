"""`braidlog.session.loss=refuse`: without a session a broker acknowledges nothing by itself, and says so."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaError

from braidlog.local_cluster.zookeeper import ZooKeeper
from support import confluent
from support.cluster import start_cluster
from support.eventually import eventually


def readiness(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def delivered(bootstrap: str, acks: str) -> bool:
    errors: list[KafkaError | None] = []
    producer = confluent.producer(bootstrap, acks=acks, retries=0, delivery_timeout_ms=30_000)
    producer.produce("kept", b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    # Compared by identity: an error of this client cannot be compared with None.
    return len(errors) == 1 and errors[0] is None


def test_acks_of_one_are_refused_until_there_is_a_session(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    settings = {
        "zookeeper.connect": new_connect(),
        "braidlog.session.loss": "refuse",
        "braidlog.http.listen": "127.0.0.1:0",
    }
    with start_cluster(zookeeper, tmp_path, 1, settings) as cluster:
        (broker,) = cluster.brokers
        address = broker.http_address
        confluent.create_topic(broker.bootstrap_servers, "kept")
        assert readiness(address) == (200, "ready\n")
        assert delivered(broker.bootstrap_servers, "1")
        zookeeper.each(lambda server: server.pause())
        try:
            eventually(lambda: readiness(address)[0] == 503)
            assert "no ZooKeeper session" in readiness(address)[1]
            assert not delivered(broker.bootstrap_servers, "1")
            assert delivered(broker.bootstrap_servers, "all")
        finally:
            zookeeper.each(lambda server: server.resume())
        eventually(lambda: readiness(address) == (200, "ready\n"))
        eventually(lambda: delivered(broker.bootstrap_servers, "1"))
