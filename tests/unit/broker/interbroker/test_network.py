"""How a broker shows the others who it is."""

from __future__ import annotations

from random import Random

import pytest

from braidlog.broker.interbroker.network import inter_broker_channels
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="s3cret";'
PREFIX = "listener.name.brokers."
SCRAM = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}


def channels(protocol: str, texts: dict[str, str]) -> object:
    return inter_broker_channels(BrokerSettings(texts), "BROKERS", protocol, Random(1))


def test_clear_text_needs_nothing() -> None:
    assert channels("PLAINTEXT", {}) is None


def test_a_login_is_the_listeners() -> None:
    assert channels("SASL_PLAINTEXT", {**SCRAM, f"{PREFIX}scram-sha-512.sasl.jaas.config": JAAS}) is not None


def test_a_token_comes_from_where_clients_get_theirs() -> None:
    offered = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
    key, module = f"{PREFIX}oauthbearer.sasl.jaas.config", "OAuthBearerLoginModule required"
    url = f"{PREFIX}oauthbearer.sasl.oauthbearer.token.endpoint.url"
    for texts in ({key: f'{module} unsecuredLoginStringClaim_sub="broker";'}, {key: f"{module};", url: "file:///t"}):
        assert channels("SASL_PLAINTEXT", {**offered, **texts}) is not None
    with pytest.raises(UserError, match="needs a source of tokens"):
        channels("SASL_PLAINTEXT", {**offered, key: f"{module};"})


@pytest.mark.parametrize(
    ("protocol", "texts", "message"),
    [
        ("SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, "is GSSAPI, which sasl.enabled.mechanisms of the"),
        ("SASL_PLAINTEXT", SCRAM, "set listener.name.brokers.scram-sha-512.sasl.jaas.config with username"),
        (
            "SASL_PLAINTEXT",
            {**SCRAM, f"{PREFIX}scram-sha-512.sasl.jaas.config": JAAS.replace("Scram", "Plain")},
            "the listener BROKERS between brokers: sasl.jaas.config has a PlainLoginModule",
        ),
        ("SSL", {"ssl.truststore.location": "/nowhere"}, "between brokers: ssl.truststore.location: /nowhere"),
    ],
)
def test_a_mistake_is_explained(protocol: str, texts: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        channels(protocol, texts)
    assert "s3cret" not in str(caught.value)
