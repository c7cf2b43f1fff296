"""Apache Kafka with a listener for every way a client may be let in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.peers.kafka import KafkaBroker, free_port, start_kafka

from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.security import scram
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from support.certificates import Authority, Identity

USER = "alice"
PASSWORD = 'alice\'s "secret", =%'
# How long a session lasts on the listener RENEWED.
SESSION_MS = 2_500

_LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "RENEWED": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
}
# It runs beside everything else.
_JVM = ("-Xmx384M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_ALTER_SCRAM = 51


class GuardedKafka(NamedTuple):
    ports: Mapping[str, int]
    authority: Authority
    client: Identity
    broker: KafkaBroker

    def at(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    @property
    def trust(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.truststore.location": str(self.authority.certificate)}


@contextmanager
def start_guarded_kafka(place: Path) -> Iterator[GuardedKafka]:
    authority = Authority(place / "ca")
    server = authority.issue("broker", "DNS:localhost", "IP:127.0.0.1")
    elsewhere = authority.issue("elsewhere", "DNS:elsewhere.example")
    client = authority.issue("client")
    ports = {name: free_port() for name in (*_LISTENERS, "CONTROLLER")}
    addresses = {name: f"{name}://localhost:{ports[name]}" for name in ports}
    settings = {
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(addresses[name] for name in _LISTENERS),
        "controller.quorum.voters": f"1@localhost:{ports['CONTROLLER']}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {"CONTROLLER": "PLAINTEXT", **_LISTENERS}.items()
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.bundle),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere.bundle),
        **_sasl_settings(),
    }
    (place / "data").mkdir()
    with start_kafka(place / "data", ports["PLAINTEXT"], settings, _JVM) as broker:
        started = GuardedKafka(ports, authority, client, broker)
        add_scram_user(started.at("PLAINTEXT"), USER, PASSWORD)
        yield started


def _sasl_settings() -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    modules = {
        "plain": f'{package}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        "scram-sha-256": f"{package}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{package}.scram.ScramLoginModule required;",
        "oauthbearer": f'{package}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";',
    }
    settings = {}
    for listener in ("sasl", "renewed", "sasltls"):
        settings[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(_MECHANISMS)
        for mechanism, module in modules.items():
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = module
            if listener == "renewed":
                settings[f"listener.name.{listener}.{mechanism}.connections.max.reauth.ms"] = str(SESSION_MS)
    return settings


def add_scram_user(bootstrap: str, user: str, password: str) -> None:
    salt = b"a salt for tests"
    upsertions = [
        ScramCredentialUpsertion(
            name=user,
            mechanism=number,
            iterations=4096,
            salt=salt,
            salted_password=scram.salted_password(mechanism, password, salt, 4096),
        )
        for number, mechanism in ((1, scram.SHA_256), (2, scram.SHA_512))
    ]
    with ClusterConnection(bootstrap) as cluster:
        cluster.run(lambda call: _add_credentials(call, upsertions))


async def _add_credentials(call: ClusterCall, upsertions: list[ScramCredentialUpsertion]) -> None:
    broker = await call.any()
    # A request may name a user once.
    for each in upsertions:
        request = AlterUserScramCredentialsRequest(upsertions=[each])
        (result,) = (await broker.call(_ALTER_SCRAM, request, AlterUserScramCredentialsResponse)).results
        assert result.error_code == 0, result
