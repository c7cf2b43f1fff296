from __future__ import annotations

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from braidlog.local_cluster.worker_settings import (
    WorkerPlace,
    check_workers,
    first_broker_id,
    http_port_of,
    with_lasting_ports,
    worker_settings,
)


def settings_of(worker: int, texts: dict[str, str], workers: int = 3, *, own_store: bool = True) -> dict[str, str]:
    place = WorkerPlace(worker, ["/d/worker-1"], worker, "/d/store/store.sock" if own_store else None)
    return worker_settings(BrokerSettings(texts), place, workers, "here", 1000, http_is_free=True)


def test_what_a_worker_has_of_its_own() -> None:
    assert settings_of(1, {"listeners": "PLAINTEXT://127.0.0.1:9092"}) == {
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "log.dirs": "/d/worker-1",
        "broker.id": "1",
        "node.id": "1",
        "braidlog.http.listen": "127.0.0.1:9465",
        "braidlog.host": "here",
        "braidlog.memory.max": "1000",
        "braidlog.store.socket": "/d/store/store.sock",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }


def test_what_an_operator_says_stays() -> None:
    said = {
        "listeners": "PLAINTEXT://:9092,INTERNAL://127.0.0.1:19092",
        "advertised.listeners": "PLAINTEXT://example.com:19,INTERNAL://127.0.0.1:19092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "braidlog.host": "rack 7, slot 3",
        "braidlog.memory.max": "77",
        "braidlog.http.listen": "0.0.0.0:80",
        "offsets.topic.replication.factor": "1",
    }
    own = settings_of(2, said)
    assert own["listeners"] == "PLAINTEXT://:9094,INTERNAL://127.0.0.1:19094"
    assert own["advertised.listeners"] == "PLAINTEXT://example.com:21,INTERNAL://127.0.0.1:19094"
    assert own["braidlog.http.listen"] == "0.0.0.0:82"
    assert not {"braidlog.host", "braidlog.memory.max", "offsets.topic.replication.factor"} & own.keys()


def test_on_zookeeper_replication_is_the_operators() -> None:
    own = settings_of(0, {}, own_store=False)
    assert "braidlog.store.socket" not in own
    assert not any("replication" in key for key in own)


def test_metrics_that_nobody_asked_for_are_left_out_where_the_port_is_taken() -> None:
    place = WorkerPlace(0, ["/d"], None, None)
    own = worker_settings(BrokerSettings({}), place, 1, "here", 1, http_is_free=False)
    assert own["braidlog.http.listen"] == ""
    assert "broker.id" not in own
    assert http_port_of(BrokerSettings({"braidlog.http.listen": ""}), 3) == 0
    assert http_port_of(BrokerSettings({}), 3) == 9467


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:65534"}, "3 workers from port 65534 on would end above 65535"),
        (
            {
                "listeners": "PLAINTEXT://127.0.0.1:9092,B://127.0.0.1:9094",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "listener B of worker 0 and listener PLAINTEXT of worker 2 would both have port 9094: .* at least 3 apart",
        ),
        ({"listeners": "PLAINTEXT://127.0.0.1:9466"}, "both have port 9466"),
        ({"braidlog.store.dir": "/s"}, "braidlog.store.dir is for a broker alone"),
        ({"braidlog.store.socket": "/s"}, "is what --workers sets"),
    ],
)
def test_what_workers_cannot_have(texts: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_workers(BrokerSettings(texts), 3)


def test_what_they_can_have() -> None:
    check_workers(BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:0"}), 100)
    check_workers(BrokerSettings({"braidlog.http.listen": ""}), 3)


def test_ports_that_anybody_chooses_last() -> None:
    given = BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/d"})
    chosen = with_lasting_ports(given, lambda: 14_000)
    assert chosen.get_str("listeners") == "PLAINTEXT://127.0.0.1:14000"
    assert chosen.log_dirs == ("/d",)
    named = BrokerSettings({"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert with_lasting_ports(named, lambda: 14_000) is named


def test_first_broker_ids() -> None:
    assert first_broker_id(BrokerSettings({}), own_store=True) == 0
    assert first_broker_id(BrokerSettings({}), own_store=False) is None
    assert first_broker_id(BrokerSettings({"broker.id": "10"}), own_store=False) == 10
