"""Certificates for tests, made by the openssl program: an authority, and who it vouches for."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Identity:
    """A private key and its certificate, each in a file; `bundle` has both."""

    def __init__(self, key: Path, certificate: Path) -> None:
        self.key = key
        self.certificate = certificate
        self.bundle = key.with_suffix(".pem")
        self.bundle.write_text(key.read_text() + certificate.read_text())


class Authority:
    def __init__(self, place: Path, name: str = "test authority") -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._key = place / "authority.key"
        self.certificate = place / "authority.crt"
        _openssl(
            *_new_key(self._key), "-out", str(self.certificate), "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE",
        )  # fmt: skip

    def issue(self, name: str, *alternatives: str) -> Identity:
        """`alternatives` as in DNS:localhost, IP:127.0.0.1."""
        key, certificate = self._place / f"{name}.key", self._place / f"{name}.crt"
        names = ",".join(alternatives) or f"DNS:{name}"
        _openssl(
            *_new_key(key), "-out", str(certificate), "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}",
            "-addext", "basicConstraints=critical,CA:FALSE",
            "-CA", str(self.certificate), "-CAkey", str(self._key),
        )  # fmt: skip
        return Identity(key, certificate)


def _new_key(key: Path) -> list[str]:
    return [
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
        "-keyout", str(key),
    ]  # fmt: skip


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed:\n{done.stderr}")


def encrypted_key(identity: Identity, password: str) -> str:
    """The private key in PEM, as PKCS #8 under a password."""
    done = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", str(identity.key), "-passout", f"pass:{password}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout
