"""What a listener's settings ask of its clients.

    sasl.enabled.mechanisms                                  of all listeners, or listener.name.<listener>. before it
    listener.name.<listener>.<mechanism>.sasl.jaas.config    the users of PLAIN, and the broker's own name and password
    ssl.keystore.*, ssl.truststore.*, ssl.client.auth        likewise, of all listeners or of one

A listener that cannot do what it is asked for keeps the broker from starting: none is open by accident.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.authentication.delegation_tokens import DelegationTokenManager
from braidlog.broker.authentication.sasl_authenticator import Mechanisms
from braidlog.broker.authentication.scram_users import ScramUsers
from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from braidlog.net.channel import ANONYMOUS
from braidlog.net.tls_context import TlsOptions, own_certificate, server_context
from braidlog.security import gssapi_server, jaas, oauthbearer, plain, scram
from braidlog.security.certificate_changes import CertificateNames, check_change, names_of
from braidlog.security.kerberos_names import parse_principal_rules, realm_of
from braidlog.security.plain import PlainSaslServer, plain_users
from braidlog.security.sasl_server import SaslServer
from braidlog.security.scram_server import ScramSaslServer
from braidlog.security.ssl_principals import distinguished_name, parse_mapping_rules

if TYPE_CHECKING:
    from braidlog.broker.authentication.verification_keys import VerificationKeys

OFFERED: Final = (plain.MECHANISM, *scram.MECHANISMS, oauthbearer.MECHANISM, gssapi_server.MECHANISM)
_MODULE_OF: Final = {
    plain.MECHANISM: jaas.PLAIN,
    oauthbearer.MECHANISM: jaas.OAUTHBEARER,
    gssapi_server.MECHANISM: jaas.KERBEROS,
}
_JAAS: Final = "sasl.jaas.config"
# What a store is shows in its first bytes; the setting is only checked.
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")


def check_listener(settings: BrokerSettings, listener: str, protocol: str) -> list[str]:
    """What is worth a warning; raises UserError where the listener could not be opened with these settings."""
    warnings: list[str] = []
    if protocol.endswith("SSL"):
        tls_of_listener(settings, listener, protocol)
        principal_of(settings, listener)
        client_auth = settings.get_str("ssl.client.auth")
        if protocol == "SASL_SSL" and client_auth != "none" and _client_auth(settings, listener, protocol) == "none":
            warnings.append(
                f"ssl.client.auth={client_auth} does not count for the listener {listener}, whose clients log in with "
                f"SASL; set {known.LISTENER_PREFIX}{listener.lower()}.ssl.client.auth to ask for a certificate as well"
            )
    if protocol.startswith("SASL_"):
        mechanisms = sasl_mechanisms(settings, listener, ScramUsers(b""))
        if protocol == "SASL_PLAINTEXT" and plain.MECHANISM in mechanisms.new_server:
            warnings.append(
                f"passwords travel in clear text on the listener {listener}, which offers PLAIN without TLS; use "
                "SCRAM, or SASL_SSL in listener.security.protocol.map"
            )
        if oauthbearer.MECHANISM in mechanisms.new_server:
            warnings += _token_warnings(settings, listener, protocol)
    return warnings


def _token_warnings(settings: BrokerSettings, listener: str, protocol: str) -> list[str]:
    from braidlog.broker.authentication.oauthbearer_tokens import takes_unsigned

    if takes_unsigned(settings, listener, _jaas_options(settings, listener, oauthbearer.MECHANISM)):
        return [
            f"the listener {listener} takes unsigned tokens: whoever reaches it logs in under any name; set "
            "sasl.oauthbearer.jwks.endpoint.url to have tokens verified"
        ]
    if protocol == "SASL_PLAINTEXT":
        return [
            f"tokens travel in clear text on the listener {listener}: use SASL_SSL in listener.security.protocol.map"
        ]
    return []


def sasl_mechanisms(
    settings: BrokerSettings,
    listener: str,
    users: ScramUsers,
    tokens: DelegationTokenManager | None = None,
    keys: Callable[[], VerificationKeys] | None = None,
) -> Mechanisms:
    """Raises UserError that names the setting to change; without `keys` no bearer token is verified."""
    enabled = settings.get_for_listener(listener, "sasl.enabled.mechanisms")
    assert isinstance(enabled, tuple)
    new_server: dict[str, Callable[[], SaslServer]] = {}
    max_reauth_ms: dict[str, int] = {}
    for name in enabled:
        if name not in OFFERED:
            own = f"{known.LISTENER_PREFIX}{listener.lower()}.sasl.enabled.mechanisms"
            raise UserError(
                f"the listener {listener} speaks SASL, and {own} (or sasl.enabled.mechanisms) asks for {name}, which "
                f"braidlog does not have; set it to some of {', '.join(OFFERED)}"
            )
        if name == plain.MECHANISM:
            new_server[name] = partial(PlainSaslServer, plain_users(_plain_options(settings, listener)))
        elif name == oauthbearer.MECHANISM:
            new_server[name] = _token_server(settings, listener, keys)
        elif name == gssapi_server.MECHANISM:
            new_server[name] = _kerberos_server(settings, listener)
        else:
            mechanism = scram.MECHANISMS[name]
            token_of = None if tokens is None else partial(tokens.find, mechanism)
            new_server[name] = partial(ScramSaslServer, mechanism, partial(users.find, mechanism), token_of=token_of)
        longest = settings.get_for_mechanism(listener, name, "connections.max.reauth.ms")
        assert isinstance(longest, int)
        max_reauth_ms[name] = longest
    if not new_server:
        raise UserError(f"the listener {listener} speaks SASL, and sasl.enabled.mechanisms is empty")
    size = settings.get_for_listener(listener, "sasl.server.max.receive.size")
    assert isinstance(size, int)
    return Mechanisms(
        new_server, max_reauth_ms, size, settings.get_int("connection.failed.authentication.delay.ms") / 1000
    )


def _token_server(
    settings: BrokerSettings, listener: str, keys: Callable[[], VerificationKeys] | None
) -> Callable[[], SaslServer]:
    # A listener without tokens starts without these.
    from braidlog.broker.authentication.oauthbearer_tokens import token_validator

    options = _jaas_options(settings, listener, oauthbearer.MECHANISM)
    return partial(oauthbearer.OAuthBearerSaslServer, token_validator(settings, listener, options, keys))


def _kerberos_server(settings: BrokerSettings, listener: str) -> Callable[[], SaslServer]:
    options = _jaas_options(settings, listener, gssapi_server.MECHANISM)
    keytab, principal = options.get("keyTab"), options.get("principal")
    if not keytab or not principal:
        raise UserError(
            f"the listener {listener} offers GSSAPI and has no key: set "
            f"{known.mechanism_key(listener, gssapi_server.MECHANISM, _JAAS)} to "
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            'keyTab="/etc/braidlog/broker.keytab" principal="kafka/broker.example.com@EXAMPLE.COM"; or set '
            "sasl.enabled.mechanisms to other mechanisms"
        )
    service = settings.get_for_mechanism(listener, gssapi_server.MECHANISM, "sasl.kerberos.service.name")
    if service and service != principal.partition("/")[0]:
        raise UserError(
            f"sasl.kerberos.service.name is {service}, and the listener {listener} has the key of {principal}"
        )
    rules = settings.get_for_mechanism(listener, gssapi_server.MECHANISM, "sasl.kerberos.principal.to.local.rules")
    namer = parse_principal_rules(rules if isinstance(rules, tuple) else (), realm_of(principal))
    acceptor = gssapi_server.Acceptor(keytab.removeprefix("file:"), principal)
    return lambda: gssapi_server.GssapiSaslServer(acceptor.new_context(), namer.name_of)


def _plain_options(settings: BrokerSettings, listener: str) -> dict[str, str]:
    options = _jaas_options(settings, listener, plain.MECHANISM)
    if not options:
        hint = f"; {_JAAS} alone is read by no listener" if settings.is_set(_JAAS) else ""
        raise UserError(
            f"the listener {listener} offers PLAIN and has no users: set "
            f"{known.mechanism_key(listener, plain.MECHANISM, _JAAS)} to "
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="…";' + hint
        )
    return options


def _jaas_options(settings: BrokerSettings, listener: str, mechanism: str) -> dict[str, str]:
    """Of the listener's own login module for the mechanism; empty where it has none."""
    key = known.mechanism_key(listener, mechanism, _JAAS)
    text = settings.get_for_mechanism(listener, mechanism, _JAAS) if settings.is_set(key) else None
    if not isinstance(text, str) or not text:
        return {}
    try:
        module = jaas.parse_jaas(text)
    except UserError as problem:
        raise UserError(f"{key}: {str(problem).removeprefix(f'{_JAAS}: ')}") from None
    if module.name != _MODULE_OF[mechanism]:
        raise UserError(f"{key} has a {module.name}; {mechanism} wants {_MODULE_OF[mechanism]}")
    return module.options


# TLS


def tls_of_listener(settings: BrokerSettings, listener: str, protocol: str) -> ssl.SSLContext:
    """Raises UserError that names the setting to change."""
    try:
        return server_context(tls_options(settings, listener), _client_auth(settings, listener, protocol))
    except UserError as problem:
        raise UserError(f"the listener {listener}: {problem}") from problem


def certificate_names(settings: BrokerSettings, listener: str) -> CertificateNames | None:
    """Whose certificate the listener shows; None where that cannot be told."""
    try:
        return names_of(own_certificate(tls_options(settings, listener)))
    except UserError:
        return None


def check_certificate_change(
    settings: BrokerSettings, listener: str, before: CertificateNames | None, after: CertificateNames | None
) -> None:
    """Raises UserError where the listener has to keep the certificate that it has."""
    if before is None:
        return
    if after is None:
        raise UserError(f"the listener {listener}: the new certificate cannot be compared with the old one")
    try:
        check_change(
            before,
            after,
            allow_dn_changes=settings.get_bool("ssl.allow.dn.changes"),
            allow_san_changes=settings.get_bool("ssl.allow.san.changes"),
        )
    except UserError as problem:
        raise UserError(f"the listener {listener}: {problem}") from problem


def _client_auth(settings: BrokerSettings, listener: str, protocol: str) -> str:
    """Who logs in with SASL needs no certificate, unless the listener itself asks for one (KIP-684)."""
    if protocol == "SASL_SSL" and not settings.is_set(f"{known.LISTENER_PREFIX}{listener.lower()}.ssl.client.auth"):
        return "none"
    return str(settings.get_for_listener(listener, "ssl.client.auth"))


def principal_of(settings: BrokerSettings, listener: str) -> Callable[[Mapping[str, Any]], str]:
    """Names the owner of a certificate."""
    mapper = parse_mapping_rules(str(settings.get_for_listener(listener, "ssl.principal.mapping.rules")))

    def named(certificate: Mapping[str, Any]) -> str:
        return mapper.name_of(distinguished_name(certificate)) if certificate else ANONYMOUS

    return named


def tls_options(settings: BrokerSettings, listener: str) -> TlsOptions:
    def text(key: str) -> str | None:
        value = settings.get_for_listener(listener, key)
        return value if isinstance(value, str) and value else None

    def words(key: str) -> tuple[str, ...]:
        value = settings.get_for_listener(listener, key)
        return value if isinstance(value, tuple) else ()

    for kind in (text("ssl.keystore.type"), text("ssl.truststore.type")):
        if kind is not None and kind.upper() not in _STORE_TYPES:
            raise UserError(f"ssl.keystore.type, ssl.truststore.type: {kind} is none of {', '.join(_STORE_TYPES)}")
    own_protocol = f"{known.LISTENER_PREFIX}{listener.lower()}.ssl.protocol"
    return TlsOptions(
        protocols=words("ssl.enabled.protocols"),
        newest_protocol=text("ssl.protocol") or "TLS",
        is_newest_given=settings.is_set("ssl.protocol") or settings.is_set(own_protocol),
        cipher_suites=words("ssl.cipher.suites"),
        endpoint_identification=text("ssl.endpoint.identification.algorithm") or "",
        truststore_certificates=text("ssl.truststore.certificates"),
        truststore_location=text("ssl.truststore.location"),
        truststore_password=text("ssl.truststore.password"),
        keystore_key=text("ssl.keystore.key"),
        keystore_certificate_chain=text("ssl.keystore.certificate.chain"),
        keystore_location=text("ssl.keystore.location"),
        keystore_password=text("ssl.keystore.password"),
        key_password=text("ssl.key.password"),
    )
