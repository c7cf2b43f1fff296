"""Stores of keys and certificates: PEM however it is wrapped, and Java's own format."""

from __future__ import annotations

import hashlib
import struct
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import UserError
from braidlog.net.keystores import read_store, wrapped

WHERE = "ssl.truststore.location"


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def _certificate(der: bytes) -> bytes:
    return _text("X.509") + struct.pack(">I", len(der)) + der


def _protected(key: bytes, password: str) -> bytes:
    """A key as Java's JKS hides it, in an EncryptedPrivateKeyInfo."""
    secret = password.encode("utf-16-be")
    salt = bytes(range(20))
    stream, block = b"", salt
    while len(stream) < len(key):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    hidden = bytes(a ^ b for a, b in zip(key, stream, strict=False))
    octets = salt + hidden + hashlib.sha1(secret + key).digest()
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    inner = algorithm + b"\x04\x82" + struct.pack(">H", len(octets)) + octets
    return b"\x30\x82" + struct.pack(">H", len(inner)) + inner


def jks(
    password: str,
    trusted: Sequence[bytes] = (),
    key: bytes | None = None,
    chain: Sequence[bytes] = (),
    key_password: str | None = None,
) -> bytes:
    entries = [
        struct.pack(">I", 2) + _text(f"ca{number}") + struct.pack(">Q", 1) + _certificate(der)
        for number, der in enumerate(trusted)
    ]
    if key is not None:
        hidden = _protected(key, key_password or password)
        entry = struct.pack(">I", 1) + _text("me") + struct.pack(">QI", 1, len(hidden)) + hidden
        entries.append(entry + struct.pack(">I", len(chain)) + b"".join(map(_certificate, chain)))
    body = b"\xfe\xed\xfe\xed" + struct.pack(">II", 2, len(entries)) + b"".join(entries)
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def _ders(pem: str, label: str) -> list[bytes]:
    parts = pem.split(f"-----BEGIN {label}-----\n")[1:]
    return [b64decode(part.split("-----END")[0]) for part in parts]


def _file(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "store"
    path.write_bytes(data)
    return str(path)


def test_a_java_trust_store(tmp_path: Path) -> None:
    path = _file(tmp_path, jks("changeit", [b"one" * 100, b"two"]))
    for password in ("changeit", None):
        store = read_store(WHERE, path, password)
        assert _ders(store.certificates, "CERTIFICATE") == [b"one" * 100, b"two"]
        assert store.identity == ""


def test_a_java_key_store(tmp_path: Path) -> None:
    store = read_store(WHERE, _file(tmp_path, jks("chängeit", key=b"k" * 333, chain=[b"leaf", b"root"])), "chängeit")
    assert _ders(store.identity, "PRIVATE KEY") == [b"k" * 333]
    assert _ders(store.identity, "CERTIFICATE") == [b"leaf", b"root"]
    assert "kkk" not in repr(store)


def test_a_key_with_a_password_of_its_own(tmp_path: Path) -> None:
    path = _file(tmp_path, jks("changeit", key=b"key", chain=[b"leaf"], key_password="other"))
    assert _ders(read_store(WHERE, path, "changeit", "other").identity, "PRIVATE KEY") == [b"key"]
    with pytest.raises(UserError, match="password of the key is wrong"):
        read_store(WHERE, path, "changeit")


def test_what_is_wrong_with_a_java_store(tmp_path: Path) -> None:
    whole = jks("changeit", [b"one"], b"key", [b"leaf"])
    with pytest.raises(UserError, match="damaged, or its password is wrong"):
        read_store(WHERE, _file(tmp_path, whole), "other")
    with pytest.raises(UserError, match=r"password of the key is wrong .ssl\.key\.password"):
        read_store(WHERE, _file(tmp_path, whole), None)
    with pytest.raises(UserError, match="not a JKS store that can be read"):
        read_store(WHERE, _file(tmp_path, jks("changeit", [b"one"])[:-30]), None)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(b"\xfe\xed\xfe\xed" + noise)
    with suppress(UserError):
        read_store(WHERE, str(path), None)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither PEM nor"):
        read_store(WHERE, _file(tmp_path, b"hello"), None)
    with pytest.raises(UserError, match=r"ssl\.truststore\.location: /nowhere: No such file"):
        read_store(WHERE, "/nowhere", None)


def test_pkcs12_tells_how_to_convert_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("braidlog.net.keystores.import_module", missing)
    with pytest.raises(UserError, match=r"pip install 'braidlog\[tls\]'.*openssl pkcs12 -in"):
        read_store(WHERE, _file(tmp_path, b"\x30\x82\x01\x00"), "changeit")


def test_pem_on_one_line_is_wrapped() -> None:
    body = "QUJD" * 40
    one_line = f"-----BEGIN CERTIFICATE----- {body[:80]} {body[80:]} -----END CERTIFICATE-----"
    lines = wrapped(one_line).strip().splitlines()
    assert lines[0] == "-----BEGIN CERTIFICATE-----"
    assert "".join(lines[1:-1]) == body
    assert max(map(len, lines[1:-1])) == 64
    assert wrapped(wrapped(one_line)).split() == wrapped(one_line).split()


def test_pem_with_a_key_is_an_identity(tmp_path: Path) -> None:
    pem = b"-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"
    assert read_store(WHERE, _file(tmp_path, pem), None).identity
    assert not read_store(WHERE, _file(tmp_path, pem.replace(b"PRIVATE KEY", b"CERTIFICATE")), None).identity
