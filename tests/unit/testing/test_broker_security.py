"""What is asked of a broker's security, as settings of the broker and of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braidlog.security.jaas import parse_jaas
from braidlog.testing.broker_security import BrokerSecurity

USERS = {"alice": 'a"\\b', "bob": "b"}


def test_nothing_asked_for_is_nothing_needed() -> None:
    assert not BrokerSecurity().is_needed
    assert BrokerSecurity().protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("asked", "protocol"),
    [
        ({"tls": True}, "SSL"),
        ({"tls": "mutual"}, "SSL"),
        ({"users": USERS}, "SASL_PLAINTEXT"),
        ({"tls": True, "users": USERS}, "SASL_SSL"),
    ],
)
def test_the_protocol_follows_from_what_is_asked_for(asked: dict[str, Any], protocol: str, tmp_path: Path) -> None:
    security = BrokerSecurity(**asked)
    assert security.protocol == protocol
    assert f"CLIENTS:{protocol}," in security.settings(tmp_path)["listener.security.protocol.map"]


def test_passwords_are_quoted(tmp_path: Path) -> None:
    security = BrokerSecurity(users=USERS, mechanism="PLAIN")
    of_broker = security.settings(tmp_path)["listener.name.clients.plain.sasl.jaas.config"]
    assert parse_jaas(of_broker).options == {f"user_{name}": password for name, password in USERS.items()}
    of_client = security.client_settings("java", "alice", tmp_path)["sasl.jaas.config"]
    assert parse_jaas(of_client).options == {"username": "alice", "password": USERS["alice"]}
    assert USERS["alice"] not in repr(security)


def test_certificates_are_made_once(tmp_path: Path) -> None:
    security, directory = BrokerSecurity(tls="mutual"), tmp_path / "tls"
    security.make_certificates(directory)
    before = {path.name: path.read_text() for path in directory.iterdir()}
    assert before.keys() == {"ca.crt", "broker.pem", "client.pem"}
    security.make_certificates(directory)
    assert {path.name: path.read_text() for path in directory.iterdir()} == before
    settings = security.client_settings("confluent-kafka", None, directory)
    assert settings["ssl.certificate.location"] == str(directory / "client.pem")


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it may be True, False or 'mutual'"):
        BrokerSecurity(tls="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        BrokerSecurity(users=USERS, mechanism="GSSAPI")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="SCRAM's may"):
        BrokerSecurity(users={"a b": "c"}, mechanism="PLAIN")
    with pytest.raises(ValueError, match="library is 'franz'"):
        BrokerSecurity(tls=True).client_settings("franz", None, tmp_path)  # type: ignore[arg-type]
