"""Settings of TLS become a context, or an error that names the setting."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from braidlog.client.network.channel_builders import tls_options
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.errors import UserError
from braidlog.net.tls_context import TlsContext, TlsOptions, openssl_name, own_certificate, tls_context
from support.certificates import Authority, Identity, encrypted_key

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


def context(**settings: Any) -> TlsContext:
    return tls_context(tls_options(Settings.of(ADMIN, None, settings)))


def test_by_default_the_systems_authorities_and_the_hosts_name_count() -> None:
    made = context().context
    assert made.verify_mode == ssl.CERT_REQUIRED
    assert made.check_hostname
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2
    assert made.maximum_version == ssl.TLSVersion.TLSv1_3
    assert not context().has_identity


def test_the_hosts_name_need_not_count() -> None:
    made = context(ssl_endpoint_identification_algorithm="").context
    assert not made.check_hostname
    assert made.verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(UserError, match="use https"):
        context(ssl_endpoint_identification_algorithm="ldaps")


def test_versions() -> None:
    made = context(ssl_enabled_protocols="TLSv1.2").context
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2
    assert context(ssl_protocol="TLSv1.2").context.maximum_version == ssl.TLSVersion.TLSv1_2
    assert context(ssl_protocol="TLS").context.maximum_version == ssl.TLSVersion.TLSv1_3
    with pytest.raises(UserError, match="'SSLv3' is none of"):
        context(ssl_enabled_protocols="SSLv3,TLSv1.2")
    with pytest.raises(UserError, match="leave no version"):
        context(ssl_enabled_protocols="TLSv1.3", ssl_protocol="TLSv1.2")


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_by_javas_names(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    made = context(ssl_cipher_suites=java).context
    older = [each["name"] for each in made.get_ciphers() if not each["name"].startswith("TLS_")]
    assert older == [openssl]
    assert made.maximum_version == ssl.TLSVersion.TLSv1_2


def test_cipher_suites_of_tls_1_3() -> None:
    assert context(ssl_cipher_suites="TLS_AES_256_GCM_SHA384").context.minimum_version == ssl.TLSVersion.TLSv1_3
    both = context(ssl_cipher_suites="TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").context
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    with pytest.raises(UserError, match="TLS_NO_SUCH_WITH_NOTHING is not known"):
        context(ssl_cipher_suites="TLS_NO_SUCH_WITH_NOTHING")


def test_trust(authority: Authority, client: Identity) -> None:
    made = context(ssl_truststore_location=str(authority.certificate)).context
    assert made.cert_store_stats()["x509"] == 1
    one_line = " ".join((authority.certificate.read_text() + client.certificate.read_text()).split("\n"))
    assert context(ssl_truststore_certificates=one_line).context.cert_store_stats()["x509"] == 2


def test_trust_that_is_none(authority: Authority, client: Identity) -> None:
    with pytest.raises(UserError, match="holds no certificate to trust"):
        context(ssl_truststore_location=str(client.key))
    with pytest.raises(UserError, match="both set"):
        context(ssl_truststore_location=str(authority.certificate), ssl_truststore_certificates="x")
    broken = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----"
    with pytest.raises(UserError, match=r"ssl\.truststore\.certificates holds a certificate that cannot be read"):
        context(ssl_truststore_certificates=broken)


def test_an_identity(client: Identity) -> None:
    assert context(ssl_keystore_location=str(client.bundle)).has_identity
    key, chain = client.key.read_text(), client.certificate.read_text()
    assert context(ssl_keystore_key=key, ssl_keystore_certificate_chain=chain).has_identity
    hidden = encrypted_key(client, "geheim")
    given = {"ssl_keystore_key": hidden, "ssl_keystore_certificate_chain": chain}
    assert context(**given, ssl_key_password="geheim").has_identity
    with pytest.raises(UserError, match=r"encrypted; set ssl\.key\.password"):
        context(**given)
    with pytest.raises(UserError, match=r"is ssl\.key\.password right") as caught:
        context(**given, ssl_key_password="s3cret")
    assert "s3cret" not in str(caught.value)


def test_an_identity_that_is_none(authority: Authority, client: Identity) -> None:
    with pytest.raises(UserError, match="holds no private key"):
        context(ssl_keystore_location=str(client.certificate))
    with pytest.raises(UserError, match="go together"):
        context(ssl_keystore_key=client.key.read_text())
    with pytest.raises(UserError, match="both set"):
        context(ssl_keystore_key="x", ssl_keystore_certificate_chain="y", ssl_keystore_location="z")
    other = authority.issue("other")
    with pytest.raises(UserError, match="cannot be used"):
        context(ssl_keystore_key=client.key.read_text(), ssl_keystore_certificate_chain=other.certificate.read_text())


def test_no_key_is_left_behind(client: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system cannot keep a file in memory, the temporary one is gone when the context is made."""
    monkeypatch.delattr("os.memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert context(ssl_keystore_location=str(client.bundle)).has_identity
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("versions", [("TLSv1.2",), ("TLSv1.3",), ("TLSv1.2", "TLSv1.3")])
def test_a_listeners_own_certificate_is_decoded(authority: Authority, versions: tuple[str, ...]) -> None:
    for identity in (authority.issue("own", "localhost"), authority.issue_expired("own", "localhost")):
        options = TlsOptions(versions, "TLS", False, (), "", keystore_location=str(identity.bundle))
        found = own_certificate(options)
        assert found["subject"] == ((("commonName", "own"),),)
        assert found["subjectAltName"] == (("DNS", "localhost"),)
