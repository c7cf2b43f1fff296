"""A broker with a listener for every way a client may be let in: braidlog, or Apache Kafka as the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.peers.kafka import free_port, start_kafka
from tools.peers.process import LoggedProcess

from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.security import scram
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from support.broker import KAFKA, start_braidlog
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
    "EXPIRED": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SCRAMONLY": "SASL_PLAINTEXT",
    "RENEWED": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
}
# It runs beside everything else.
_JVM = ("-Xmx384M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SHARED_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ALTER_SCRAM = 51


class GuardedBroker(NamedTuple):
    """`client` is a certificate that MUTUAL accepts; `expired` and `stranger` are not accepted."""

    kind: str
    ports: Mapping[str, int]
    authority: Authority
    client: Identity
    expired: Identity
    stranger: Identity
    process: LoggedProcess

    def at(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    @property
    def trust(self) -> dict[str, str]:
        return {"security.protocol": "SSL", "ssl.truststore.location": str(self.authority.certificate)}


@contextmanager
def start_guarded(kind: str, place: Path) -> Iterator[GuardedBroker]:
    authority = Authority(place / "ca")
    ports = {name: free_port() for name in (*_LISTENERS, "CONTROLLER")}
    own = GuardedBroker(
        kind,
        ports,
        authority,
        authority.issue("client"),
        authority.issue_expired("client"),
        Authority(place / "stranger", "somebody else").issue("stranger"),
        None,  # type: ignore[arg-type]
    )
    settings = {**_listeners(kind, ports), **_tls_settings(authority), **_sasl_settings(kind)}
    (place / "data").mkdir()
    with _process(kind, place / "data", ports["PLAINTEXT"], settings) as process:
        add_scram_user(own.at("PLAINTEXT"), USER, PASSWORD)
        yield own._replace(process=process)


@contextmanager
def _process(kind: str, data: Path, port: int, settings: Mapping[str, str]) -> Iterator[LoggedProcess]:
    if kind == KAFKA:
        with start_kafka(data, port, settings, _JVM) as kafka:
            yield kafka.process
    else:
        with start_braidlog(data, settings, port=port) as broker:
            yield broker.process
            assert PASSWORD not in broker.log()
            assert broker.stop() == 0


def _listeners(kind: str, ports: Mapping[str, int]) -> dict[str, str]:
    addresses = {name: f"{name}://localhost:{ports[name]}" for name in ports}
    protocols = {"CONTROLLER": "PLAINTEXT", **_LISTENERS} if kind == KAFKA else _LISTENERS
    settings = {
        "listeners": ",".join(addresses[name] for name in protocols),
        "advertised.listeners": ",".join(addresses[name] for name in _LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
    }
    if kind == KAFKA:
        settings["controller.quorum.voters"] = f"1@localhost:{ports['CONTROLLER']}"
    return settings


def _tls_settings(authority: Authority) -> dict[str, str]:
    server = authority.issue("broker", "localhost", "127.0.0.1")
    elsewhere = authority.issue("elsewhere", "elsewhere.example")
    expired = authority.issue_expired("broker", "localhost", "127.0.0.1")
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.bundle),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere.bundle),
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": str(expired.bundle),
    }


def _sasl_settings(kind: str) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    modules = {
        "plain": f'{package}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        "scram-sha-256": f"{package}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{package}.scram.ScramLoginModule required;",
    }
    mechanisms = _SHARED_MECHANISMS
    if kind == KAFKA:
        # A property file has escapes of its own.
        modules = {mechanism: module.replace("\\", "\\\\") for mechanism, module in modules.items()}
        token = f"{package}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub"
        modules["oauthbearer"] = f'{token}="b";'
        mechanisms = (*_SHARED_MECHANISMS, "OAUTHBEARER")
    settings = {
        "listener.name.scramonly.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scramonly.scram-sha-512.sasl.jaas.config": modules["scram-sha-512"],
    }
    for listener in ("sasl", "renewed", "sasltls"):
        settings[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(mechanisms)
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
