"""Ways to log in and to be refused, once for every client and both brokers; each in the names of the Java client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.certificates import Identity
from support.guarded_broker import PASSWORD, USER, GuardedBroker

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OK: Final = "ok"
# How the Java client calls a refusal.
SASL_REFUSED: Final = "SaslAuthenticationException"
MECHANISM_REFUSED: Final = "UnsupportedSaslMechanismException"
TLS_REFUSED: Final = "SslAuthenticationException"


@dataclass(frozen=True, slots=True)
class Login:
    """What a client does at a listener; `outcome` is OK, or the Java client's error.

    `identity` and `trust` name what of a GuardedBroker is taken.
    """

    listener: str
    outcome: str = OK
    mechanism: str | None = None
    user: str = USER
    password: str = PASSWORD
    trust: str | None = None
    identity: str | None = None

    @property
    def protocol(self) -> str:
        sasl, tls = self.mechanism is not None, self.trust is not None
        if sasl:
            return "SASL_SSL" if tls else "SASL_PLAINTEXT"
        return "SSL" if tls else "PLAINTEXT"

    def trusted(self, broker: GuardedBroker) -> Path:
        return broker.authority.certificate if self.trust == "authority" else broker.stranger.certificate

    def own(self, broker: GuardedBroker) -> Path | None:
        if self.identity is None:
            return None
        identity: Identity = getattr(broker, self.identity)
        return identity.bundle


def _scenarios() -> dict[str, Login]:
    found: dict[str, Login] = {
        "tls": Login("TLS", trust="authority"),
        "mutual TLS": Login("MUTUAL", trust="authority", identity="client"),
        "unknown authority": Login("TLS", TLS_REFUSED, trust="stranger"),
        "expired certificate of the broker": Login("EXPIRED", TLS_REFUSED, trust="authority"),
        "certificate for another host": Login("ELSEWHERE", TLS_REFUSED, trust="authority"),
        "no certificate": Login("MUTUAL", TLS_REFUSED, trust="authority"),
        "certificate of a stranger": Login("MUTUAL", TLS_REFUSED, trust="authority", identity="stranger"),
        "expired certificate": Login("MUTUAL", TLS_REFUSED, trust="authority", identity="expired"),
        "mechanism not offered": Login("SCRAMONLY", MECHANISM_REFUSED, "PLAIN"),
        "weaker mechanism": Login("SCRAMONLY", MECHANISM_REFUSED, "SCRAM-SHA-256"),
    }
    for each in MECHANISMS:
        found[each] = Login("SASL", mechanism=each)
        found[f"{each} over TLS"] = Login("SASLTLS", mechanism=each, trust="authority")
        found[f"{each}, wrong password"] = Login("SASL", SASL_REFUSED, each, password="wr0ng")
        found[f"{each}, unknown user"] = Login("SASL", SASL_REFUSED, each, user="mallory")
    return found


SCENARIOS: Final[Mapping[str, Login]] = _scenarios()


def java_properties(login: Login, broker: GuardedBroker) -> dict[str, str]:
    settings = {"bootstrap.servers": broker.at(login.listener), "security.protocol": login.protocol}
    if login.mechanism is not None:
        quoted = login.password.replace('"', '\\"')
        kind = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
        settings |= {
            "sasl.mechanism": login.mechanism,
            "sasl.jaas.config": f'org.apache.kafka.common.security.{kind} required username="{login.user}" '
            f'password="{quoted}";',
        }
    if login.trust is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(login.trusted(broker))}
    if own := login.own(broker):
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
    return settings


def property_file(login: Login, broker: GuardedBroker, path: Path) -> Path:
    """As Kafka's tools take it."""
    lines = (f"{key}={value}" for key, value in java_properties(login, broker).items())
    path.write_text("\n".join(lines).replace("\\", "\\\\") + "\n")
    return path


def librdkafka_properties(login: Login, broker: GuardedBroker) -> dict[str, str]:
    settings = {"bootstrap.servers": broker.at(login.listener), "security.protocol": login.protocol}
    if login.mechanism is not None:
        settings |= {
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.user,
            "sasl.password": login.password,
        }
    if login.trust is not None:
        settings["ssl.ca.location"] = str(login.trusted(broker))
    if own := login.own(broker):
        settings |= {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
    return settings
