from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.errors import UserError
from braidlog.security.certificate_authority import CertificateAuthority, KeyAndCertificate

DAY = timedelta(days=1)
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority("an authority", NOW, 30 * DAY)


def handshake(
    authority: CertificateAuthority, broker: KeyAndCertificate, client: KeyAndCertificate, host: str, place: Path
) -> Mapping[str, Any]:
    """Both sides check strictly; returns what the broker learns of the client."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, own in ((server_side, broker), (client_side, client)):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=authority.own.certificate)
        (place / "own.pem").write_text(own.bundle)
        context.load_cert_chain(place / "own.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    ours = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [ours, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    return server.getpeercert() or {}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "broker1.example.com"])
def test_both_sides_trust_each_other_strictly(authority: CertificateAuthority, host: str, tmp_path: Path) -> None:
    broker = authority.issue("broker", ["localhost", "127.0.0.1", "::1", "broker1.example.com"])
    seen = handshake(authority, broker, authority.issue("alice"), host, tmp_path)
    assert seen["subject"] == ((("commonName", "alice"),),)


def test_a_brokers_certificate_is_for_its_hosts_alone(authority: CertificateAuthority, tmp_path: Path) -> None:
    broker = authority.issue("broker", ["localhost"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(authority, broker, authority.issue("alice"), "elsewhere.example", tmp_path)


def test_a_client_cannot_pose_as_a_broker(authority: CertificateAuthority, tmp_path: Path) -> None:
    alice = authority.issue("localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unsuitable certificate purpose|unsupported certificate"):
        handshake(authority, alice, alice, "localhost", tmp_path)


def test_a_certificate_ends(authority: CertificateAuthority, tmp_path: Path) -> None:
    ended = authority.issue("broker", ["localhost"], valid=(NOW - 2 * DAY, NOW - DAY))
    with pytest.raises(ssl.SSLCertVerificationError, match="has expired"):
        handshake(authority, ended, authority.issue("alice"), "localhost", tmp_path)


def test_another_authority_of_the_same_name_is_not_trusted(authority: CertificateAuthority, tmp_path: Path) -> None:
    other = CertificateAuthority("an authority", NOW, 30 * DAY)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, other.issue("broker", ["localhost"]), authority.issue("alice"), "localhost", tmp_path)


def test_keys_are_as_java_reads_them(authority: CertificateAuthority) -> None:
    issued = authority.issue("broker", ["localhost"])
    assert issued.key.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert issued.bundle == issued.key + issued.certificate


def test_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(UserError, match=r"pip install 'braidlog\[tls\]'"):
        CertificateAuthority("an authority", NOW, DAY)
