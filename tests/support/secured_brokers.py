"""Brokers that reach each other over a listener which speaks TLS and wants a login, or a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from braidlog.testing import Cluster
from support.certificates import Authority, Identity
from support.ports import lasting_port

PASSWORD: Final = "br0kers"
PLAIN: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
    "listener.name.brokers.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.brokers.sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="broker" password="{PASSWORD}" user_broker="{PASSWORD}";'
    ),
}
SCRAM: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
    "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.brokers.sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.brokers.scram-sha-512.sasl.jaas.config": (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="{PASSWORD}";'
    ),
}
TOKENS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
    "listener.name.brokers.sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.brokers.sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "listener.name.brokers.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
}
MUTUAL: Final = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SSL",
    "listener.name.brokers.ssl.client.auth": "required",
}


def secure(cluster: Cluster, security: Mapping[str, str], directory: Path) -> tuple[Authority, Identity]:
    """Before it starts; clients are served in clear text as ever. All brokers have one key."""
    authority = Authority(directory)
    identity = authority.issue("broker", "127.0.0.1")
    for broker in cluster.brokers:
        broker.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},BROKERS://127.0.0.1:{lasting_port()}",
            "inter.broker.listener.name": "BROKERS",
            "ssl.keystore.location": str(identity.bundle),
            "ssl.truststore.location": str(authority.certificate),
            **security,
        }
    return authority, identity
