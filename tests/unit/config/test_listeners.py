"""What is accepted at all is in test_kafka_verdicts; here is what comes of it, and what a person is told."""

from __future__ import annotations

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.config.listeners import Listeners, parse_listeners, shared_with_brokers
from braidlog.core.protocol_errors import InvalidConfigError
from braidlog.core.types import Endpoint


def listeners(**texts: str) -> Listeners:
    return parse_listeners(BrokerSettings({key.replace("_", "."): text for key, text in texts.items()}))


def test_a_broker_listens_on_loopback_unless_told_otherwise() -> None:
    assert listeners() == Listeners(
        bound=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
        advertised=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
        protocols={"PLAINTEXT": "PLAINTEXT"},
        inter_broker="PLAINTEXT",
    )


def test_names_map_to_protocols_and_advertised_follow_the_order_of_the_bound() -> None:
    found = listeners(
        listeners="internal://[::1]:9092,EXTERNAL://0.0.0.0:9093",
        advertised_listeners="EXTERNAL://broker.example:19093,INTERNAL://host-1:9092",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL",
        inter_broker_listener_name="internal",
    )
    assert found.bound == (Endpoint("INTERNAL", "::1", 9092), Endpoint("EXTERNAL", "0.0.0.0", 9093))
    assert found.advertised == (
        Endpoint("INTERNAL", "host-1", 9092),
        Endpoint("EXTERNAL", "broker.example", 19093),
    )
    assert found.protocols == {"INTERNAL": "PLAINTEXT", "EXTERNAL": "SASL_SSL"}
    assert found.inter_broker == "INTERNAL"


def test_the_listener_of_a_kraft_controller_is_not_opened() -> None:
    found = listeners(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_listener_names="CONTROLLER",
        advertised_listeners="PLAINTEXT://h:9092,CONTROLLER://h:9093",
    )
    assert found.bound == (Endpoint("PLAINTEXT", "", 9092),)
    assert found.advertised == (Endpoint("PLAINTEXT", "h", 9092),)
    assert found.protocols == {"PLAINTEXT": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, r"cannot connect to 0.0.0.0; set advertised.listeners to"),
        ({"listeners": "PLAINTEXT://[::]:9092"}, r"cannot connect to ::"),
        ({"listeners": "9092"}, r"'9092' is not of the form NAME://host:port"),
        ({"listeners": "X://h:1"}, r"add X:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, r"PLAINTEXT://h:1 and SSL://h:1 have the same port"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, r"names PLAINTEXT twice"),
        ({"listeners": "SSL://h:1"}, r"over the listener PLAINTEXT, which is not advertised \(SSL\)"),
        ({"advertised_listeners": "SSL://h:1"}, r"SSL is not one of the listeners \(PLAINTEXT\)"),
        ({"listeners": "CONTROLLER://:1", "controller_listener_names": "CONTROLLER"}, r"at least one listener"),
        ({"listener_security_protocol_map": "A:B"}, r"'A:B' is not of the form NAME:PROTOCOL"),
    ],
)
def test_a_mistake_is_explained(texts: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        listeners(**texts)


def test_a_listener_for_clients_and_brokers_alike_is_worth_a_word_in_a_cluster() -> None:
    def said(**texts: str) -> str | None:
        settings = BrokerSettings({key.replace("_", "."): value for key, value in texts.items()})
        return shared_with_brokers(settings, parse_listeners(settings))

    assert said() is None
    assert "inter.broker.listener.name" in (said(zookeeper_connect="z:2181") or "")
    two = {
        "listeners": "PLAINTEXT://:9092,B://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    }
    assert said(zookeeper_connect="z:2181", **two) is None
