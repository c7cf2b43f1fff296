"""The settings of TLS as the `ssl.SSLContext` of connections that are opened, or accepted."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError
from braidlog.net.keystores import read_store, wrapped

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
# Java's name for whatever is newest.
_ANY: Final = ("TLS", "SSL", "Default")
_MODERN_SUITES: Final = re.compile(r"TLS_(AES|CHACHA20)_\w+_SHA\d+")
_IDENTIFY_HOST: Final = "https"
# X509_V_FLAG_NO_CHECK_TIME, which Python has no name for.
_NO_CHECK_TIME: Final = 0x200000


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Kafka's settings of the same names, of a client or of a broker that connects to others."""

    # ssl.enabled.protocols; and ssl.protocol, which limits them where it was set.
    protocols: tuple[str, ...]
    newest_protocol: str
    is_newest_given: bool
    cipher_suites: tuple[str, ...]
    endpoint_identification: str
    truststore_certificates: str | None = None
    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    keystore_key: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = None
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


class TlsContext(NamedTuple):
    """What connections are made from; whether this client has a certificate of its own to show."""

    context: ssl.SSLContext
    has_identity: bool


def tls_context(options: TlsOptions) -> TlsContext:
    """Raises UserError that names the setting which cannot be followed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = options.endpoint_identification.strip().lower()
    if algorithm not in ("", _IDENTIFY_HOST):
        raise UserError(f"ssl.endpoint.identification.algorithm={algorithm}: use https, or nothing for no check")
    context.check_hostname = algorithm == _IDENTIFY_HOST
    # A certificate that is trusted ends the chain, be it an issuer's or the broker's own: as in Java.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _set_versions(context, options)
    suites = options.cipher_suites
    if suites:
        _set_suites(context, suites)
    _set_trust(context, options)
    return TlsContext(context, _set_identity(context, options))


def server_context(options: TlsOptions, client_auth: str) -> ssl.SSLContext:
    """For a listener; `client_auth` is required, requested or none. Raises UserError as above."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(context, options)
    if options.cipher_suites:
        _set_suites(context, options.cipher_suites)
    if client_auth != "none":
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
        _set_trust(context, options)
    if not _set_identity(context, options):
        raise UserError(
            "a listener that speaks TLS needs a key and a certificate: set ssl.keystore.location, or ssl.keystore.key "
            "and ssl.keystore.certificate.chain"
        )
    return context


def own_certificate(options: TlsOptions) -> Mapping[str, Any]:
    """What a listener shows its clients, as Python decodes it; raises UserError where it has none that can be shown.

    Python decodes only certificates of peers: so they shake hands here, in memory. Whether it has expired is no matter.
    """
    server = server_context(options, "none")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server)
    try:
        client.load_verify_locations(cadata=_identity_text(options))
        for side in (theirs, ours, theirs, ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        return theirs.getpeercert() or {}
    except (ssl.SSLError, ValueError) as problem:
        raise UserError(f"the certificate cannot be shown to clients ({_reason(problem)})") from problem


def _identity_text(options: TlsOptions) -> str:
    """The certificate chain of the listener, in PEM; its key may stand before it."""
    if options.keystore_certificate_chain:
        return wrapped(options.keystore_certificate_chain)
    assert options.keystore_location is not None
    return read_store(
        "ssl.keystore.location", options.keystore_location, options.keystore_password, options.key_password
    ).identity


def _set_versions(context: ssl.SSLContext, options: TlsOptions) -> None:
    named = options.protocols
    newest = options.newest_protocol
    for name in named if newest in _ANY else [*named, newest]:
        if name not in _VERSIONS:
            raise UserError(f"ssl.enabled.protocols, ssl.protocol: {name!r} is none of {', '.join(_VERSIONS)}")
    enabled = sorted(_VERSIONS[name] for name in named)
    if options.is_newest_given and newest not in _ANY:
        enabled = [version for version in enabled if version <= _VERSIONS[newest]]
    if not enabled:
        raise UserError("ssl.enabled.protocols, ssl.protocol: together they leave no version of TLS")
    context.minimum_version = enabled[0]
    context.maximum_version = enabled[-1]


def _set_suites(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Those of TLS 1.3 are all or none, since OpenSSL takes no list of them from Python."""
    modern = [suite for suite in suites if _MODERN_SUITES.fullmatch(suite)]
    older = [suite for suite in suites if suite not in modern]
    if not modern:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    for suite in older:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError as problem:
            raise UserError(f"ssl.cipher.suites: {suite} is not known to this machine's OpenSSL") from problem
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite that Java calls TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC", "")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20_POLY1305"
    name = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return name.replace("_", "-")


# Trust


def _set_trust(context: ssl.SSLContext, options: TlsOptions) -> None:
    given = options.truststore_certificates
    path = options.truststore_location
    if given and path:
        raise UserError("ssl.truststore.location and ssl.truststore.certificates are both set; one of them is enough")
    if given:
        what, certificates = "ssl.truststore.certificates", wrapped(given)
    elif path:
        what = f"ssl.truststore.location: {path}"
        certificates = read_store("ssl.truststore.location", path, options.truststore_password).certificates
    else:
        is_server = context.protocol == ssl.PROTOCOL_TLS_SERVER
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH if is_server else ssl.Purpose.SERVER_AUTH)
        return
    if "-----BEGIN CERTIFICATE-----" not in certificates:
        raise UserError(f"{what} holds no certificate to trust")
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as problem:
        raise UserError(f"{what} holds a certificate that cannot be read ({_reason(problem)})") from problem


# Identity


def _set_identity(context: ssl.SSLContext, options: TlsOptions) -> bool:
    key = options.keystore_key
    chain = options.keystore_certificate_chain
    path = options.keystore_location
    password = options.key_password
    if path and (key or chain):
        raise UserError("ssl.keystore.location and ssl.keystore.key are both set; one of them is enough")
    if bool(key) != bool(chain):
        raise UserError("ssl.keystore.key and ssl.keystore.certificate.chain go together; one of them is missing")
    if key and chain:
        _load_identity(context, "ssl.keystore.key", wrapped(key) + "\n" + wrapped(chain), password)
    elif path:
        what = f"ssl.keystore.location: {path}"
        store = read_store("ssl.keystore.location", path, options.keystore_password, password)
        if not store.identity:
            raise UserError(f"{what} holds no private key")
        _load_identity(context, what, store.identity, password)
    return bool(key or path)


def _load_identity(context: ssl.SSLContext, what: str, pem: str, password: str | None) -> None:
    def answer() -> str:
        # Without this OpenSSL would ask on the terminal.
        if password is None:
            raise UserError(f"{what}: the private key is encrypted; set ssl.key.password")
        return password

    with _as_file(pem) as path:
        try:
            context.load_cert_chain(path, password=answer)
        except (ssl.SSLError, ValueError) as problem:
            hint = "is ssl.key.password right, and the certificate that of the key?"
            raise UserError(f"{what}: key and certificate cannot be used ({_reason(problem)}); {hint}") from problem


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """A path under which only OpenSSL finds the key: in memory where the system can."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("identity")
        path = f"/proc/self/fd/{handle}"
        try:
            os.write(handle, pem.encode("latin-1"))
            os.lseek(handle, 0, os.SEEK_SET)
            yield path
        finally:
            os.close(handle)
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem.encode("latin-1"))
        file.flush()
        yield file.name


def _reason(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return problem.reason.lower().replace("_", " ")
    return str(problem)
