"""Certificates for tests, in files: an authority, and who it vouches for; and the stores that Java keeps them in."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from braidlog.security.certificate_authority import CertificateAuthority, KeyAndCertificate

_LIFETIME = timedelta(days=30)


class Identity:
    """A private key and its certificate, each in a file; `bundle` has both."""

    def __init__(self, place: Path, name: str, made: KeyAndCertificate) -> None:
        self.key, self.certificate, self.bundle = (place / f"{name}.{kind}" for kind in ("key", "crt", "pem"))
        self.key.write_text(made.key)
        self.certificate.write_text(made.certificate)
        self.bundle.write_text(made.bundle)


class Authority:
    def __init__(self, place: Path, name: str = "test authority") -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._authority = CertificateAuthority(name, datetime.now(UTC), _LIFETIME)
        self.certificate = Identity(place, "authority", self._authority.own).certificate

    def issue(self, name: str, *hosts: str) -> Identity:
        """For who is called so and found at `hosts`, names or addresses."""
        return Identity(self._place, name, self._authority.issue(name, hosts or (name,)))

    def issue_expired(self, name: str, *hosts: str) -> Identity:
        """Valid until yesterday."""
        now = datetime.now(UTC)
        valid = (now - timedelta(days=10), now - timedelta(days=1))
        return Identity(self._place, f"{name}-expired", self._authority.issue(name, hosts or (name,), valid))


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed:\n{done.stderr}")


def pkcs12_key_store(identity: Identity, authority: Authority, password: str) -> Path:
    """The key with its chain, as Java keeps them."""
    store = identity.key.with_suffix(".p12")
    _openssl(
        "pkcs12", "-export", "-in", str(identity.certificate), "-inkey", str(identity.key),
        "-certfile", str(authority.certificate), "-name", "own", "-out", str(store), "-passout", f"pass:{password}",
    )  # fmt: skip
    return store


def pkcs12_trust_store(authority: Authority, password: str) -> Path:
    return _trust_store(authority, "PKCS12", password)


def jks_trust_store(authority: Authority, password: str) -> Path:
    return _trust_store(authority, "JKS", password)


def _trust_store(authority: Authority, kind: str, password: str) -> Path:
    """Made by Java's own program, which marks the certificate as trusted."""
    store = authority.certificate.with_name(f"trusted.{kind.lower()}")
    _keytool(
        "-importcert", "-alias", "authority", "-file", str(authority.certificate),
        "-keystore", str(store), "-storetype", kind, "-storepass", password,
    )  # fmt: skip
    return store


def jks_key_store(identity: Identity, authority: Authority, password: str) -> Path:
    source = pkcs12_key_store(identity, authority, password)
    store = identity.key.with_suffix(".jks")
    _keytool(
        "-importkeystore", "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", password,
        "-destkeystore", str(store), "-deststoretype", "JKS", "-deststorepass", password, "-destkeypass", password,
    )  # fmt: skip
    return store


def _keytool(*arguments: str) -> None:
    done = subprocess.run(["keytool", *arguments, "-noprompt"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"keytool failed:\n{done.stdout}")


def encrypted_key(identity: Identity, password: str) -> str:
    """The private key in PEM, as PKCS #8 under a password."""
    done = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", str(identity.key), "-passout", f"pass:{password}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout
