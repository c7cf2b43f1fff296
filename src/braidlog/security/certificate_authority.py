"""A certificate authority for trying TLS out: keys and certificates in PEM, made with the package cryptography.

Keys are of the curve P-256, in PKCS #8, the one form that Java reads from PEM. Certificates carry the extensions that
OpenSSL asks for when it checks strictly, as Python does from 3.13 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib import import_module
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError

# Clocks of other machines may be a little behind.
_BEFORE_NOW: Final = timedelta(hours=1)


class KeyAndCertificate(NamedTuple):
    key: str
    certificate: str

    @property
    def bundle(self) -> str:
        """Both in one text, as `ssl.keystore.location` wants a file."""
        return self.key + self.certificate


class CertificateAuthority:
    """Signs certificates with a key of its own, valid for `lifetime` from `now` on."""

    def __init__(self, name: str, now: datetime, lifetime: timedelta) -> None:
        """Raises UserError where cryptography is not installed."""
        try:
            self._x509: Any = import_module("cryptography.x509")
            self._ec: Any = import_module("cryptography.hazmat.primitives.asymmetric.ec")
            self._hashes: Any = import_module("cryptography.hazmat.primitives.hashes")
            self._serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
        except ImportError as missing:
            raise UserError("certificates are made with the package cryptography: `pip install 'braidlog[tls]'`") from (
                missing
            )
        self._valid = (now - _BEFORE_NOW, now + lifetime)
        self._name = self._named(name)
        self._key = self._new_key()
        uses = self._uses(signs_certificates=True)
        constraints = self._x509.BasicConstraints(ca=True, path_length=0)
        extensions = [(constraints, True), (uses, True)]
        certificate = self._signed(self._name, self._key, self._valid, extensions)
        self.own = KeyAndCertificate(self._pem_of_key(self._key), self._pem(certificate))

    def issue(
        self, name: str, hosts: Sequence[str] = (), valid: tuple[datetime, datetime] | None = None
    ) -> KeyAndCertificate:
        """For a broker at `hosts`, names or addresses, or for a client that is called `name`."""
        x509 = self._x509
        usage = x509.oid.ExtendedKeyUsageOID
        # A broker is a client of other brokers, too.
        purposes = [usage.CLIENT_AUTH, *([usage.SERVER_AUTH] if hosts else [])]
        extensions = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (self._uses(signs_certificates=False), True),
            (x509.ExtendedKeyUsage(purposes), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ]
        if hosts:
            extensions.append((x509.SubjectAlternativeName([self._host(host) for host in hosts]), False))
        key = self._new_key()
        certificate = self._signed(self._named(name), key, valid or self._valid, extensions)
        return KeyAndCertificate(self._pem_of_key(key), self._pem(certificate))

    def _signed(
        self, subject: Any, key: Any, valid: tuple[datetime, datetime], extensions: list[tuple[Any, bool]]
    ) -> Any:
        x509 = self._x509
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(valid[0])
            .not_valid_after(valid[1])
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(self._key, self._hashes.SHA256())

    def _named(self, name: str) -> Any:
        return self._x509.Name([self._x509.NameAttribute(self._x509.oid.NameOID.COMMON_NAME, name)])

    def _host(self, host: str) -> Any:
        try:
            return self._x509.IPAddress(ip_address(host))
        except ValueError:
            return self._x509.DNSName(host)

    def _uses(self, *, signs_certificates: bool) -> Any:
        return self._x509.KeyUsage(
            digital_signature=not signs_certificates,
            key_cert_sign=signs_certificates,
            crl_sign=signs_certificates,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )

    def _new_key(self) -> Any:
        return self._ec.generate_private_key(self._ec.SECP256R1())

    def _pem_of_key(self, key: Any) -> str:
        forms = self._serialization
        pem: bytes = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
        return pem.decode()

    def _pem(self, certificate: Any) -> str:
        pem: bytes = certificate.public_bytes(self._serialization.Encoding.PEM)
        return pem.decode()
