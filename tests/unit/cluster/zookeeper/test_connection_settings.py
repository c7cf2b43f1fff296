from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.cluster.zookeeper.connection_settings import connection_settings, parse_connect
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from support.certificates import Authority


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("a:2181", (("a", 2181),), ""),
        ("a", (("a", 2181),), ""),
        ("a:1,b:2 , c:3", (("a", 1), ("b", 2), ("c", 3)), ""),
        ("a:1,b:2/", (("a", 1), ("b", 2)), ""),
        ("a:1,b:2/kafka/one/", (("a", 1), ("b", 2)), "/kafka/one"),
        ("[::1]:2182,[::2]/kafka", (("::1", 2182), ("::2", 2181)), "/kafka"),
    ],
)
def test_servers_and_chroot(text: str, servers: tuple[tuple[str, int], ...], chroot: str) -> None:
    assert parse_connect(text) == (servers, chroot)


@pytest.mark.parametrize("text", ["", "/kafka", "a:x", ":2181", "a:0", "a:70000", "a:1/kafka//one", "a:1/../up"])
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"zookeeper\.connect"):
        parse_connect(text)


def test_kafkas_settings_are_taken_over() -> None:
    texts = {
        "zookeeper.session.timeout.ms": "9000",
        "zookeeper.max.in.flight.requests": "7",
        "braidlog.zookeeper.sasl.username": "kafka",
        "braidlog.zookeeper.sasl.password": "hush",
        "zookeeper.set.acl": "true",
    }
    made = connection_settings("a:1,[::1]:2/kafka", BrokerSettings(texts))
    assert (made.session_timeout_ms, made.connection_timeout_ms, made.max_in_flight) == (9000, 9000, 7)
    assert (made.sasl_username, made.secure_acls, made.chroot) == ("kafka", True, "/kafka")
    assert made.servers_text == "a:1,[::1]:2"
    assert made.tls is None
    assert "hush" not in repr(made)
    shorter = connection_settings("a:1", BrokerSettings({"zookeeper.connection.timeout.ms": "5"}))
    assert (shorter.session_timeout_ms, shorter.connection_timeout_ms) == (18000, 5)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl"),
        ({"braidlog.zookeeper.sasl.username": "kafka"}, "set both"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/no/such"},
            "zookeeper.ssl.trust",
        ),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.protocol": "SSLv2"}, "zookeeper.ssl.enabled.protocols"),
    ],
)
def test_what_cannot_work_is_refused_by_the_name_of_the_setting(texts: dict[str, str], told: str) -> None:
    with pytest.raises(UserError) as refused:
        connection_settings("a:1", BrokerSettings(texts))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_client_certificate_counts_as_an_identity(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    texts = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(authority.certificate),
        "zookeeper.ssl.keystore.location": str(authority.issue("broker").bundle),
        "zookeeper.set.acl": "true",
    }
    assert connection_settings("a:1", BrokerSettings(texts)).authenticates


def test_stores_that_cannot_be_read_are_refused_by_the_settings_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("braidlog.net.keystores.import_module", missing)
    store = tmp_path / "ssl.d" / "store"
    store.parent.mkdir()
    texts = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(store),
        "zookeeper.ssl.keystore.type": "PKCS12",
    }
    store.write_bytes(b"\x30\x82\x01\x00")
    with pytest.raises(UserError) as refused:
        connection_settings("a:1", BrokerSettings(texts))
    assert str(refused.value).startswith(f"zookeeper.ssl.keystore.location: {store} is a PKCS12 store")
    assert "pip install 'braidlog[tls]'" in str(refused.value)
    store.write_bytes(b"\xce\xce\xce\xce")
    with pytest.raises(UserError, match="is neither PEM nor a Java key store"):
        connection_settings("a:1", BrokerSettings(texts))
    # Kafka has no zookeeper.ssl.key.password.
    pem = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n"
    store.write_text(pem)
    with pytest.raises(UserError, match=r"zookeeper\.ssl\.keystore\.password") as refused:
        connection_settings("a:1", BrokerSettings(texts))
    assert "key.password" not in str(refused.value)


def test_nothing_but_a_session_imports_kazoo() -> None:
    code = (
        "import sys\n"
        "from braidlog.broker import broker\n"
        "from braidlog.cluster.zookeeper import zookeeper_store\n"
        "sys.exit('kazoo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_kazoo_a_session_says_what_to_install() -> None:
    code = (
        "import asyncio, sys\n"
        "sys.modules['kazoo'] = None\n"
        "from braidlog.cluster.zookeeper.connection_settings import ConnectionSettings\n"
        "from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore\n"
        "from braidlog.core.clock import SystemClock\n"
        "from braidlog.core.errors import UserError\n"
        "from braidlog.metrics import MetricsRegistry\n"
        "store = ZooKeeperStore(ConnectionSettings((('a', 1),)), SystemClock(), MetricsRegistry())\n"
        "try:\n"
        "    asyncio.run(store.open_session())\n"
        "except UserError as problem:\n"
        "    print(problem)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True).stdout
    assert "pip install 'braidlog[cluster]'" in told
    assert told.count("\n") == 1
