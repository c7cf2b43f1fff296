"""TLS, SASL and ACLs against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from braidlog.cluster import registration
from braidlog.cluster.store import Create, StoreError, StoreUnavailableError
from braidlog.cluster.zookeeper.connection_settings import connection_settings
from braidlog.cluster.zookeeper.session import ZooKeeperSession
from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.core.errors import FatalError, UserError
from braidlog.local_cluster.zookeeper import ZooKeeper, zookeeper_missing
from braidlog.metrics import MetricsRegistry
from support.certificates import Authority, pkcs12_key_store, pkcs12_trust_store

MISSING = zookeeper_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
JAAS = """\
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="secret-of-kafka" user_other="secret-of-other";
};
"""
KAFKA = {"braidlog.zookeeper.sasl.username": "kafka", "braidlog.zookeeper.sasl.password": "secret-of-kafka"}
OTHER = {"braidlog.zookeeper.sasl.username": "other", "braidlog.zookeeper.sasl.password": "secret-of-other"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def zookeeper(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    place = tmp_path_factory.mktemp("zookeeper")
    jaas = place / "jaas.conf"
    jaas.write_text(JAAS)
    server = authority.issue("server", "127.0.0.1", "localhost")
    properties = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        "ssl.keyStore.location": str(server.bundle),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority.certificate),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "want",
        # ZooKeeper 3.9 alone speaks 1.3 only; Kafka's default towards it is 1.2.
        "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
    }
    jvm = (f"-Djava.security.auth.login.config={jaas}",)
    with ZooKeeper(directory=place / "servers", properties=properties, jvm=jvm, secure=True) as running:
        yield running


async def open_session(
    connect: str, texts: Mapping[str, str], metrics: MetricsRegistry | None = None
) -> ZooKeeperSession:
    settings = BrokerSettings({"zookeeper.connection.timeout.ms": "20000", **texts})
    made = connection_settings(connect, settings)
    return await ZooKeeperStore(made, SystemClock(), metrics or MetricsRegistry()).open_session()


def test_nodes_of_a_digest_user_are_for_that_user(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        metrics = MetricsRegistry()
        kafka = await open_session(f"{zookeeper.connect}/acls", {**KAFKA, "zookeeper.set.acl": "true"}, metrics)
        await registration.prepare_store(kafka)
        await kafka.multi([Create("/delegation_token"), Create("/delegation_token/tokens", b"secret")])
        other = await open_session(f"{zookeeper.connect}/acls", OTHER)
        assert (await other.get("/brokers/ids")).data == b""
        for path in ("/config/users", "/config/brokers", "/delegation_token/tokens"):
            with pytest.raises(StoreError, match="ACL"):
                await other.get(path)
            with pytest.raises(StoreError, match="ACL"):
                await other.get_many([path])
        for path in ("/brokers/ids/1", "/mine"):
            with pytest.raises(StoreError, match="ACL"):
                await other.create(path)
        # Old consumers write there, whoever they are.
        await other.create("/consumers/group")
        assert "zookeepersaslauthentications_total 1" in metrics.text()
        await kafka.close()
        await other.close()

    asyncio.run(body())
    raw = KazooClient(zookeeper.connect, logger=QUIET)
    raw.start()
    try:
        shown = {(acl.perms, acl.id.scheme, acl.id.id) for acl in raw.get_acls("/acls/brokers")[0]}
        assert shown == {(31, "sasl", "kafka"), (1, "world", "anyone")}
        with pytest.raises(NoAuthError):
            raw.get("/acls/config/users")
    finally:
        raw.stop()
        raw.close()


def test_a_wrong_password_is_told_in_one_line(zookeeper: ZooKeeper) -> None:
    async def body() -> None:
        metrics = MetricsRegistry()
        with pytest.raises(FatalError, match="refuses the user or the password") as refused:
            await open_session(zookeeper.connect, {**KAFKA, "braidlog.zookeeper.sasl.password": "wrong"}, metrics)
        assert "wrong" not in str(refused.value)
        assert "\n" not in str(refused.value)
        assert "zookeeperauthfailures_total 1" in metrics.text()

    asyncio.run(body())


def tls(authority: Authority, **more: str) -> dict[str, str]:
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.truststore.location": str(authority.certificate),
        **{f"zookeeper.ssl.{key.replace('_', '.')}": value for key, value in more.items()},
    }


def test_a_session_over_tls_reads_and_writes(zookeeper: ZooKeeper, authority: Authority) -> None:
    async def body() -> None:
        session = await open_session(f"{zookeeper.secure_connect}/tls", tls(authority))
        names = [f"/n{number}" for number in range(500)]
        await session.multi([Create(name, bytes(200)) for name in names])
        assert all(await session.get_many(names))
        # Many small answers share a TLS record.
        await asyncio.gather(*(session.get(name) for name in names))
        await session.close()

    asyncio.run(asyncio.wait_for(body(), 60))


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_is_an_identity(zookeeper: ZooKeeper, authority: Authority, protocol: str) -> None:
    async def body() -> None:
        broker = authority.issue(f"broker-{protocol}")
        own = tls(authority, keystore_location=str(broker.bundle), protocol=protocol)
        session = await open_session(
            f"{zookeeper.secure_connect}/mutual-{protocol}", {**own, "zookeeper.set.acl": "true"}
        )
        await session.create("/mine")
        other = await open_session(f"{zookeeper.secure_connect}/mutual-{protocol}", tls(authority))
        with pytest.raises(StoreError, match="ACL"):
            await other.create("/theirs")
        await session.close()
        await other.close()

    asyncio.run(body())


def test_pkcs12_stores_say_whom_to_trust_and_who_this_is(zookeeper: ZooKeeper, authority: Authority) -> None:
    pytest.importorskip("cryptography", reason="PKCS12 stores are read with the package cryptography")

    async def body() -> None:
        key_store = pkcs12_key_store(authority.issue("pkcs12-broker"), authority, "secret-of-key")
        trust_store = pkcs12_trust_store(authority, "secret-of-trust")
        own = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": str(key_store),
            "zookeeper.ssl.keystore.password": "secret-of-key",
            "zookeeper.ssl.keystore.type": "PKCS12",
            "zookeeper.ssl.truststore.location": str(trust_store),
            "zookeeper.ssl.truststore.password": "secret-of-trust",
            "zookeeper.ssl.truststore.type": "PKCS12",
            "zookeeper.set.acl": "true",
        }
        session = await open_session(f"{zookeeper.secure_connect}/pkcs12", own)
        await session.create("/mine")
        other = await open_session(f"{zookeeper.secure_connect}/pkcs12", tls(authority))
        with pytest.raises(StoreError, match="ACL"):
            await other.create("/theirs")
        await session.close()
        await other.close()
        with pytest.raises(UserError, match=r"zookeeper\.ssl\.keystore\.location: .* is its password right"):
            await open_session(zookeeper.secure_connect, {**own, "zookeeper.ssl.keystore.password": "wrong"})

    asyncio.run(body())


def test_a_server_that_is_not_trusted_is_told_in_one_line(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    async def body() -> None:
        stranger = Authority(tmp_path, "a stranger")
        short = {**tls(stranger), "zookeeper.connection.timeout.ms": "1500"}
        with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
            await open_session(zookeeper.secure_connect, short)

    asyncio.run(body())


def test_a_server_under_another_name_is_refused_unless_names_are_not_checked(
    authority: Authority, tmp_path: Path
) -> None:
    elsewhere = authority.issue("elsewhere", "elsewhere.example")
    properties = {
        "ssl.keyStore.location": str(elsewhere.bundle),
        "ssl.keyStore.type": "PEM",
        "ssl.clientAuth": "none",
        "ssl.enabledProtocols": "TLSv1.2",
    }

    async def body() -> None:
        checked = {**tls(authority), "zookeeper.connection.timeout.ms": "1500"}
        with pytest.raises(StoreUnavailableError, match=r"(?i)IP address mismatch|hostname"):
            await open_session(running.secure_connect, checked)
        session = await open_session(
            running.secure_connect, {**tls(authority), "zookeeper.ssl.endpoint.identification.algorithm": ""}
        )
        await session.close()

    with ZooKeeper(directory=tmp_path / "servers", properties=properties, secure=True) as running:
        asyncio.run(body())
