"""Where a broker listens and what it tells clients to connect to, with the mistakes explained at start.

listeners                       NAME://host:port, ...     what is bound
advertised.listeners            NAME://host:port, ...     what clients connect to; the listeners where not set
listener.security.protocol.map  NAME:PROTOCOL, ...        a name that is a protocol's needs no entry
inter.broker.listener.name      NAME                      how brokers reach each other
"""

import re
from typing import Final, NamedTuple

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.core.protocol_errors import InvalidConfigError
from braidlog.core.types import Endpoint

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# What a listener may have of its own with the prefix `listener.name.<listener>.` (KIP-103, KIP-402, KIP-612).
PER_LISTENER: Final = frozenset((
    "max.connections", "max.connection.creation.rate", "sasl.enabled.mechanisms", "sasl.jaas.config",
    "sasl.server.max.receive.size", "connections.max.reauth.ms", "ssl.client.auth", "ssl.principal.mapping.rules",
    "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates", "sasl.mechanism.inter.broker.protocol", "sasl.server.callback.handler.class",
    "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
    "sasl.kerberos.service.name", "sasl.kerberos.principal.to.local.rules",
))  # fmt: skip
# What decides where a broker listens, and may change while it runs (KIP-226).
LISTENER_KEYS: Final = frozenset(("listeners", "advertised.listeners", "listener.security.protocol.map"))
_ENDPOINT: Final = r"(.*)://(\[[0-9a-zA-Z\-%._:]*\]|[0-9a-zA-Z\-%._:]*):(-?[0-9]{1,10})"
EVERY_INTERFACE: Final = ("0.0.0.0", "::", "[::]")


class Listeners(NamedTuple):
    # What to bind; an empty host means every interface.
    bound: tuple[Endpoint, ...]
    # What to tell clients, in the order of `bound`; an empty host means this machine's own name.
    advertised: tuple[Endpoint, ...]
    # Listener name -> PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    protocols: dict[str, str]
    inter_broker: str


def parse_listeners(settings: BrokerSettings) -> Listeners:
    """Raises InvalidConfigError that says which listener is wrong and what would be right."""
    protocols, controllers = _names(settings)
    everything = parse_endpoints("listeners", settings.get_str("listeners"), protocols)
    _check_distinct(everything)
    bound = tuple(endpoint for endpoint in everything if endpoint.listener not in controllers)
    if not bound:
        raise InvalidConfigError("listeners must name at least one listener that is not of the controller")
    advertised = _advertised(settings, bound, controllers, protocols)
    return Listeners(
        bound=bound,
        advertised=advertised,
        protocols={endpoint.listener: protocols[endpoint.listener] for endpoint in bound},
        inter_broker=_inter_broker(settings, advertised, protocols),
    )


def shared_with_brokers(settings: BrokerSettings, listeners: Listeners) -> str | None:
    """What to say of a cluster whose brokers and clients use the same listener, where that lets clients do harm."""
    is_cluster = settings.get_str("zookeeper.connect") or settings.get_str("braidlog.store.socket")
    if not is_cluster or len(listeners.bound) > 1:
        return None
    return (
        f"clients and brokers share the listener {listeners.inter_broker}: whoever reaches it can send what "
        "brokers send each other, and so delete logs; add a second listener and name it in inter.broker.listener.name"
    )


def _names(settings: BrokerSettings) -> tuple[dict[str, str], set[str]]:
    """The protocol of each listener name, and the names of a KRaft controller's, which nothing listens on here."""
    protocols = parse_protocol_map(settings.get_str("listener.security.protocol.map"))
    controllers = {name.strip().upper() for name in settings.get_str("controller.listener.names").split(",")}
    if not settings.is_set("listener.security.protocol.map"):
        protocols.update((name, PLAINTEXT) for name in controllers if name not in protocols)
    return protocols, controllers


def overrides_without_effect(settings: BrokerSettings) -> dict[str, str]:
    """Keys with the prefix of a listener that are never read, with the reason; without those of unknown settings."""
    names = [part.partition("://")[0].strip().lower() for part in settings.get_str("listeners").split(",")]
    found: dict[str, str] = {}
    for key in settings.static:
        base = known.listener_base(key)
        setting = None if base is None else known.broker_setting(base)
        if setting is None or setting.protects is not None:
            # Unknown ones, and those that keep a broker from starting, are reported elsewhere.
            continue
        name = key[len(known.LISTENER_PREFIX) :].partition(".")[0]
        if name not in names:
            lower = " (write the listener's name in lower case)" if name.lower() in names else ""
            found[key] = f"there is no listener of that name{lower}"
        elif setting.no_effect is not None:
            found[key] = setting.no_effect
        elif setting.key not in PER_LISTENER:
            found[key] = f"{setting.key} is the same for all listeners; set it without the prefix"
    return found


def parse_endpoints(key: str, text: str, protocols: dict[str, str]) -> tuple[Endpoint, ...]:
    endpoints = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        match = re.fullmatch(_ENDPOINT, part)
        if match is None:
            raise InvalidConfigError(
                f"{key}: {part!r} is not of the form NAME://host:port, such as PLAINTEXT://127.0.0.1:9092"
            )
        name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
        if not 0 <= port <= 65535:
            raise InvalidConfigError(f"{key}: {part!r} has a port outside of 0 to 65535")
        if name not in protocols:
            raise InvalidConfigError(
                f"{key}: nothing says which protocol the listener {name} speaks; "
                f"add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        endpoints.append(Endpoint(name, host, port))
    if not endpoints:
        raise InvalidConfigError(f"{key} must name at least one listener")
    return tuple(endpoints)


def parse_protocol_map(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for pair in filter(None, (word.strip() for word in text.split(","))):
        name, colon, protocol = (word.strip().upper() for word in pair.rpartition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise InvalidConfigError(
                f"listener.security.protocol.map: {pair!r} is not of the form NAME:PROTOCOL "
                f"with one of {', '.join(PROTOCOLS)}"
            )
        if name in protocols:
            raise InvalidConfigError(f"listener.security.protocol.map names {name} twice")
        protocols[name] = protocol
    return protocols


def _check_distinct(endpoints: tuple[Endpoint, ...]) -> None:
    _check_names("listeners", endpoints)
    # Two listeners may share a port where one is IPv4 and the other IPv6 (KIP-797); port 0 asks for any free one.
    taken: dict[tuple[int, bool], Endpoint] = {}
    for endpoint in endpoints:
        families = (":" in endpoint.host,) if _is_address(endpoint.host) else (False, True)
        for family in families:
            other = taken.get((endpoint.port, family))
            if endpoint.port and other is not None:
                raise InvalidConfigError(f"listeners: {other} and {endpoint} have the same port; give each its own")
            taken[endpoint.port, family] = endpoint


def _is_address(host: str) -> bool:
    return ":" in host or re.fullmatch(r"[0-9.]+", host) is not None


def _check_names(key: str, endpoints: tuple[Endpoint, ...]) -> None:
    seen: set[str] = set()
    for endpoint in endpoints:
        if endpoint.listener in seen:
            raise InvalidConfigError(
                f"{key} names {endpoint.listener} twice; give the second its own name and an entry in "
                "listener.security.protocol.map"
            )
        seen.add(endpoint.listener)


def _advertised(
    settings: BrokerSettings, bound: tuple[Endpoint, ...], controllers: set[str], protocols: dict[str, str]
) -> tuple[Endpoint, ...]:
    text = settings.get_str("advertised.listeners")
    if not settings.is_set("advertised.listeners"):
        endpoints = bound
    else:
        everything = parse_endpoints("advertised.listeners", text, protocols)
        _check_names("advertised.listeners", everything)
        endpoints = tuple(endpoint for endpoint in everything if endpoint.listener not in controllers)
        names = [endpoint.listener for endpoint in bound]
        for endpoint in endpoints:
            if endpoint.listener not in names:
                raise InvalidConfigError(
                    f"advertised.listeners: {endpoint.listener} is not one of the listeners ({', '.join(names)})"
                )
        endpoints = tuple(sorted(endpoints, key=lambda endpoint: names.index(endpoint.listener)))
    for endpoint in endpoints:
        if endpoint.host in EVERY_INTERFACE:
            raise InvalidConfigError(
                f"advertised.listeners: clients cannot connect to {endpoint.host}; set advertised.listeners to "
                f"{endpoint.listener}://<a name or address that clients reach>:{endpoint.port}"
            )
    return endpoints


def _inter_broker(settings: BrokerSettings, advertised: tuple[Endpoint, ...], protocols: dict[str, str]) -> str:
    name = settings.get_str("inter.broker.listener.name").upper()
    protocol = settings.get_str("security.inter.broker.protocol")
    if name and settings.is_set("security.inter.broker.protocol"):
        raise InvalidConfigError("set inter.broker.listener.name or security.inter.broker.protocol, not both")
    if name and name not in protocols:
        raise InvalidConfigError(f"inter.broker.listener.name: {name} is not in listener.security.protocol.map")
    names = [endpoint.listener for endpoint in advertised]
    wanted = name or protocol
    if wanted not in names:
        raise InvalidConfigError(
            f"brokers reach each other over the listener {wanted}, which is not advertised ({', '.join(names)}); "
            "set inter.broker.listener.name to one that is"
        )
    return wanted
