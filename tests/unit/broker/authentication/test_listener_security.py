"""What settings make of a listener's logins, and what a person is told who got them wrong."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.broker.authentication.listener_security import (
    check_listener,
    principal_of,
    sasl_mechanisms,
    tls_of_listener,
    tls_options,
)
from braidlog.broker.authentication.sasl_authenticator import Mechanisms
from braidlog.broker.authentication.scram_users import ScramUsers
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from support.certificates import Authority

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret";'
KERBEROS = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    'keyTab="/nowhere" principal="kafka/localhost@EXAMPLE.COM";'
)
PREFIX = "listener.name.clients."


def mechanisms(**texts: str) -> Mechanisms:
    settings = BrokerSettings({key.replace("_", "."): text for key, text in texts.items()})
    return sasl_mechanisms(settings, "CLIENTS", ScramUsers(b""))


def test_a_listeners_own_come_first() -> None:
    found = mechanisms(
        sasl_enabled_mechanisms="PLAIN",
        listener_name_clients_sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN",
        listener_name_clients_plain_sasl_jaas_config=JAAS,
        connections_max_reauth_ms="5000",
        listener_name_clients_plain_connections_max_reauth_ms="100",
        listener_name_clients_sasl_server_max_receive_size="77",
        connection_failed_authentication_delay_ms="300",
    )
    assert list(found.new_server) == ["SCRAM-SHA-512", "PLAIN"]
    assert found.max_reauth_ms == {"SCRAM-SHA-512": 5000, "PLAIN": 100}
    assert (found.max_receive_size, found.failure_delay_s) == (77, 0.3)
    server = found.new_server["PLAIN"]()
    server.evaluate(b"\0alice\0s3cret")
    assert server.user == "alice"
    assert found.new_server["SCRAM-SHA-512"]().named() == "SCRAM-SHA-512"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"sasl_enabled_mechanisms": "CRAM-MD5"},
            "asks for CRAM-MD5, which braidlog does not have; set it to some of PLAIN, SCRAM-SHA-256",
        ),
        ({}, "offers GSSAPI and has no key: set listener.name.clients.gssapi.sasl.jaas.config to com.sun"),
        (
            {"listener_name_clients_gssapi_sasl_jaas_config": KERBEROS, "sasl_kerberos_service_name": "broker"},
            "sasl.kerberos.service.name is broker, and the listener CLIENTS has the key of kafka/localhost@EXAMPLE.COM",
        ),
        (
            {
                "listener_name_clients_gssapi_sasl_jaas_config": KERBEROS,
                "sasl_kerberos_principal_to_local_rules": "RULE:nonsense",
            },
            "principal.to.local.rules: 'RULE:nonsense' is no rule",
        ),
        ({"sasl_enabled_mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
        (
            {"sasl_enabled_mechanisms": "PLAIN"},
            "has no users: set listener.name.clients.plain.sasl.jaas.config to org.apache",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "sasl_jaas_config": JAAS},
            "sasl.jaas.config alone is read by no listener",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "listener_name_clients_plain_sasl_jaas_config": JAAS[:-1]},
            "listener.name.clients.plain.sasl.jaas.config: it has to end with a semicolon",
        ),
        (
            {
                "sasl_enabled_mechanisms": "PLAIN",
                "listener_name_clients_plain_sasl_jaas_config": 'ScramLoginModule required user_alice="s3cret";',
            },
            "has a ScramLoginModule; PLAIN wants PlainLoginModule",
        ),
    ],
)
def test_a_mistake_is_explained_without_the_secret(texts: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        mechanisms(**texts)
    assert "s3cret" not in str(caught.value)


def test_a_listener_is_looked_at_before_it_is_opened() -> None:
    assert check_listener(BrokerSettings(), "CLIENTS", "PLAINTEXT") == []
    settings = BrokerSettings({"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": JAAS})
    (warning,) = check_listener(settings, "CLIENTS", "SASL_PLAINTEXT")
    assert "passwords travel in clear text" in warning
    with pytest.raises(UserError, match="offers GSSAPI and has no key"):
        check_listener(BrokerSettings(), "CLIENTS", "SASL_PLAINTEXT")


# TLS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority(tmp_path_factory.mktemp("authority")).issue("localhost").bundle


def test_a_listeners_own_certificates_come_first(bundle: Path) -> None:
    settings = BrokerSettings({
        "ssl.keystore.location": "/nowhere", f"{PREFIX}ssl.keystore.location": str(bundle),
        "ssl.truststore.location": str(bundle), "ssl.protocol": "TLSv1.2", "ssl.cipher.suites": "A,B",
    })  # fmt: skip
    options = tls_options(settings, "CLIENTS")
    assert options.keystore_location == str(bundle)
    assert (options.cipher_suites, options.newest_protocol, options.is_newest_given) == (("A", "B"), "TLSv1.2", True)
    assert tls_options(settings, "OTHERS").keystore_location == "/nowhere"


@pytest.mark.parametrize(
    ("protocol", "texts", "mode"),
    [
        ("SSL", {}, ssl.CERT_NONE),
        ("SSL", {"ssl.client.auth": "required"}, ssl.CERT_REQUIRED),
        ("SSL", {"ssl.client.auth": "required", f"{PREFIX}ssl.client.auth": "requested"}, ssl.CERT_OPTIONAL),
        # Who logs in needs no certificate, unless the listener itself says so.
        ("SASL_SSL", {"ssl.client.auth": "required"}, ssl.CERT_NONE),
        ("SASL_SSL", {f"{PREFIX}ssl.client.auth": "required"}, ssl.CERT_REQUIRED),
    ],
)
def test_who_has_to_show_a_certificate(
    bundle: Path, protocol: str, texts: dict[str, str], mode: ssl.VerifyMode
) -> None:
    settings = BrokerSettings({"ssl.keystore.location": str(bundle), **texts})
    assert tls_of_listener(settings, "CLIENTS", protocol).verify_mode is mode


def test_a_rule_that_does_not_count_is_said(bundle: Path) -> None:
    settings = BrokerSettings(
        {
            "ssl.keystore.location": str(bundle),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
    )
    (warning,) = check_listener(settings, "CLIENTS", "SASL_SSL")
    assert "ssl.client.auth=required does not count for the listener CLIENTS" in warning


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, "the listener CLIENTS: a listener that speaks TLS needs a key and a certificate"),
        ({"ssl.keystore.location": "/nowhere"}, "the listener CLIENTS: ssl.keystore.location: /nowhere: No such file"),
        ({"ssl.keystore.type": "BCFKS"}, "BCFKS is none of PEM, PKCS12, JKS"),
    ],
)
def test_a_listener_without_what_tls_needs(texts: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_listener(BrokerSettings(texts), "CLIENTS", "SSL")


def test_certificates_name_their_owners() -> None:
    settings = BrokerSettings({f"{PREFIX}ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U"})
    named = principal_of(settings, "CLIENTS")
    assert named({"subject": ((("commonName", "alice"),),)}) == "ALICE"
    assert named({}) == "ANONYMOUS"


def test_a_listener_imports_what_its_own_mechanisms_need() -> None:
    program = (
        "import sys\n"
        "from braidlog.broker.authentication.listener_security import check_listener\n"
        "from braidlog.config.broker import BrokerSettings\n"
        "check_listener(BrokerSettings({'sasl.enabled.mechanisms': 'SCRAM-SHA-512'}), 'CLIENTS', 'SASL_PLAINTEXT')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert packages.isdisjoint({"cryptography", "gssapi"})
