"""Certificates and keys in the forms that Kafka's settings name: PEM, JKS, PKCS12; what is in a file tells its form.

    JKS: magic 0xFEEDFEED, version, count | entries | SHA-1 over password, "Mighty Aphrodite" and all before
      1  alias, time, key (encrypted, see `_decrypted`), count of certificates | type, size, DER each
      2  alias, time, type, size, DER of a trusted certificate

Java writes PKCS12 by default since Java 9, whatever the file is called.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from base64 import b64encode
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JKS_SALT: Final = b"Mighty Aphrodite"
_PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
_SHA1_SIZE: Final = 20


class Store(NamedTuple):
    """PEM text of what a store holds."""

    certificates: str
    # With its certificate chain after it; empty where the store has none.
    identity: str = ""

    def __repr__(self) -> str:
        return "Store(…)"


def read_store(setting: str, path: str, password: str | None, key_password: str | None = None) -> Store:
    """The store that a `….location` setting names; raises UserError that says how to mend it.

    In JKS the key may have a password of its own; that of PEM is OpenSSL's business.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise UserError(f"{setting}: {path}: {problem.strerror or problem}") from problem
    what = f"{setting}: {path}"
    if b"-----BEGIN " in data:
        text = wrapped(data.decode("latin-1"))
        return Store(text, text if "PRIVATE KEY-----" in text else "")
    if data.startswith(_JKS_MAGIC):
        return _read_jks(what, data, password, key_password or password or "")
    if data[:1] == b"\x30":
        return _read_pkcs12(what, path, data, password)
    raise UserError(f"{what} is neither PEM nor a Java key store (JKS, PKCS12)")


def wrapped(text: str) -> str:
    """PEM with its lines as OpenSSL wants them: property files often have it on one line."""

    def lines(found: re.Match[str]) -> str:
        body = "".join(found[2].split())
        rows = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
        # OpenSSL sees a block at the beginning of a line only.
        return f"\n-----BEGIN {found[1]}-----\n{rows}\n-----END {found[1]}-----\n"

    return _PEM_BLOCK.sub(lines, text)


def _pem(label: str, der: bytes) -> str:
    return wrapped(f"-----BEGIN {label}-----{b64encode(der).decode()}-----END {label}-----")


# PKCS12


def _read_pkcs12(what: str, path: str, data: bytes, password: str | None) -> Store:
    try:
        pkcs12: Any = import_module("cryptography.hazmat.primitives.serialization.pkcs12")
        serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
    except ImportError as missing:
        raise UserError(
            f"{what} is a PKCS12 store, which takes `pip install 'braidlog[tls]'`; or convert it to PEM with "
            f"`openssl pkcs12 -in {path} -nodes -out {path}.pem`, and name that"
        ) from missing
    try:
        content = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as problem:
        raise UserError(f"{what} cannot be read; is its password right?") from problem
    pem = serialization.Encoding.PEM
    others = "".join(each.certificate.public_bytes(pem).decode() for each in content.additional_certs)
    if content.key is None or content.cert is None:
        own = content.cert.certificate.public_bytes(pem).decode() if content.cert is not None else ""
        return Store(own + others)
    key = content.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    chain = content.cert.certificate.public_bytes(pem).decode() + others
    return Store(chain, key + chain)


# JKS


class _Entries:
    """Reads the fields of a JKS file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("it ends too early")
        self._at += size
        return taken

    def number(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode()

    def certificate(self) -> bytes:
        self.text()
        return self.take(self.number())


def _read_jks(what: str, data: bytes, password: str | None, key_password: str) -> Store:
    secret = (password or "").encode("utf-16-be")
    body, digest = data[:-_SHA1_SIZE], data[-_SHA1_SIZE:]
    # Java reads certificates of a store without its password, unchecked; so do we.
    if password is not None and not hmac.compare_digest(hashlib.sha1(secret + _JKS_SALT + body).digest(), digest):
        raise UserError(f"{what} is damaged, or its password is wrong")
    try:
        return _jks_entries(what, _Entries(body), key_password.encode("utf-16-be"))
    except (ValueError, struct.error) as problem:
        raise UserError(f"{what} is not a JKS store that can be read ({problem})") from problem


def _jks_entries(what: str, entries: _Entries, secret: bytes) -> Store:
    entries.take(8)
    trusted: list[bytes] = []
    identity = ""
    for _ in range(entries.number()):
        kind = entries.number()
        entries.text()
        entries.take(8)
        if kind == 2:
            trusted.append(entries.certificate())
            continue
        if kind != 1:
            raise ValueError(f"an entry of unknown kind {kind}")
        protected = entries.take(entries.number())
        chain = [entries.certificate() for _ in range(entries.number())]
        if not identity:
            identity = _pem("PRIVATE KEY", _decrypted(what, protected, secret))
            identity += "".join(_pem("CERTIFICATE", each) for each in chain)
    return Store("".join(_pem("CERTIFICATE", each) for each in trusted), identity)


def _decrypted(what: str, protected: bytes, secret: bytes) -> bytes:
    """The key of an EncryptedPrivateKeyInfo in Sun's own way.

    salt (20) | key XOR stream | SHA-1(password, key)      stream: blocks of SHA-1(password, block before)
    """
    sealed = _last_octets(protected)
    salt, hidden, check = sealed[:_SHA1_SIZE], sealed[_SHA1_SIZE:-_SHA1_SIZE], sealed[-_SHA1_SIZE:]
    stream = bytearray()
    block = salt
    while len(stream) < len(hidden):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise UserError(f"{what}: the password of the key is wrong (ssl.key.password, else ssl.keystore.password)")
    return key


def _last_octets(der: bytes) -> bytes:
    """The OCTET STRING that ends SEQUENCE { algorithm, OCTET STRING }."""
    _, start, _ = _element(der, 0)
    _, _, after_algorithm = _element(der, start)
    tag, start, end = _element(der, after_algorithm)
    if tag != 0x04 or end > len(der):
        raise ValueError("the key has an unknown form")
    return der[start:end]


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the content of a DER element."""
    if at + 2 > len(der):
        raise ValueError("the key ends too early")
    size = der[at + 1]
    start = at + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[start : start + count], "big")
        start += count
    return der[at], start, start + size
