"""How to reach ZooKeeper, from the broker's settings: servers, chroot, timeouts, TLS, SASL, ACLs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from braidlog.cluster.store import InvalidPathError, check_path
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from braidlog.net.tls_context import TlsContext, TlsOptions, tls_context

DEFAULT_PORT: Final = 2181
# How a message names a setting of TLS; in a path, something else.
_SETTING: Final = re.compile(r"(?<![\w./])ssl\.(?=[a-z])")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Made by `connection_settings`; `chroot` is empty or an absolute path, under which the whole cluster lives."""

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10
    # Whether nodes are created for their creator alone (zookeeper.set.acl), as `acls` says.
    secure_acls: bool = False
    tls: TlsContext | None = None
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)

    @property
    def servers_text(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    @property
    def authenticates(self) -> bool:
        return bool(self.sasl_username) or (self.tls is not None and self.tls.has_identity)


def connection_settings(connect: str, settings: BrokerSettings) -> ConnectionSettings:
    """`connect` is zookeeper.connect. Raises UserError with a line that says which setting to mend."""
    servers, chroot = parse_connect(connect)
    session_timeout_ms = settings.get_int("zookeeper.session.timeout.ms")
    given = settings.get("zookeeper.connection.timeout.ms")
    made = ConnectionSettings(
        servers=servers,
        chroot=chroot,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=given if isinstance(given, int) else session_timeout_ms,
        max_in_flight=settings.get_int("zookeeper.max.in.flight.requests"),
        secure_acls=settings.get_bool("zookeeper.set.acl"),
        tls=_tls(settings) if settings.get_bool("zookeeper.ssl.client.enable") else None,
        sasl_username=settings.get_str("braidlog.zookeeper.sasl.username"),
        sasl_password=settings.get_str("braidlog.zookeeper.sasl.password"),
    )
    if bool(made.sasl_username) != bool(made.sasl_password):
        raise UserError("braidlog.zookeeper.sasl.username and braidlog.zookeeper.sasl.password go together; set both")
    if made.secure_acls and not made.authenticates:
        raise UserError(
            "zookeeper.set.acl=true protects nodes for their creator, and the connection to ZooKeeper has no identity: "
            "set braidlog.zookeeper.sasl.username and .password, or zookeeper.ssl.keystore.location"
        )
    return made


def parse_connect(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """The servers and the chroot of `host1:2181,host2:2181/path`."""
    hosts, slash, path = text.strip().partition("/")
    chroot = slash + path.rstrip("/") if path.strip("/") else ""
    try:
        check_path(chroot or "/")
    except InvalidPathError as problem:
        raise UserError(f"zookeeper.connect={text}: the path at its end is not a znode's ({problem})") from None
    servers = []
    for each in filter(None, (part.strip() for part in hosts.split(","))):
        host, port = _host_and_port(text, each)
        servers.append((host, port))
    if not servers:
        raise UserError("zookeeper.connect names no server; such as host1:2181,host2:2181,host3:2181/kafka")
    return tuple(servers), chroot


def _host_and_port(text: str, server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or (server.startswith("[") and server.endswith("]")):
        host, port = server, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise UserError(f"zookeeper.connect={text}: {server!r} is not a server such as host:{DEFAULT_PORT}")
    return host, int(port)


def _tls(settings: BrokerSettings) -> TlsContext:
    protocol = settings.get_str("zookeeper.ssl.protocol")
    options = TlsOptions(
        protocols=settings.get_list("zookeeper.ssl.enabled.protocols") or (protocol,),
        newest_protocol=protocol,
        is_newest_given=False,
        cipher_suites=settings.get_list("zookeeper.ssl.cipher.suites"),
        endpoint_identification=settings.get_str("zookeeper.ssl.endpoint.identification.algorithm"),
        truststore_location=settings.get_str("zookeeper.ssl.truststore.location") or None,
        truststore_password=settings.get_str("zookeeper.ssl.truststore.password") or None,
        keystore_location=settings.get_str("zookeeper.ssl.keystore.location") or None,
        keystore_password=settings.get_str("zookeeper.ssl.keystore.password") or None,
        # ZooKeeper's client has no password for the key alone.
        key_password=settings.get_str("zookeeper.ssl.keystore.password") or None,
    )
    try:
        return tls_context(options)
    except UserError as problem:
        # The key has no password of its own here.
        told = str(problem).replace("ssl.key.password, else ssl.keystore.password", "ssl.keystore.password")
        told = told.replace("ssl.key.password", "ssl.keystore.password")
        raise UserError(_SETTING.sub("zookeeper.ssl.", told)) from problem
