"""Who decides about access, as the settings say it."""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from braidlog.core.principal import Principal
from braidlog.core.protocol_errors import InvalidConfigError

# Kafka's own, for ZooKeeper and for KRaft: both mean the rules that `braidlog acls` shows.
CLASSES: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
_CLASS: Final = "authorizer.class.name"
_SUPER_USERS: Final = "super.users"
_URL: Final = "authorizer.zookeeper.url"


class AuthorizerSettings(NamedTuple):
    # As rules write them: User:alice.
    super_users: frozenset[str]
    allow_if_none_found: bool


def authorizer_settings(settings: BrokerSettings) -> AuthorizerSettings | None:
    """None where everybody may do everything. Raises InvalidConfigError for what cannot be had."""
    _check_zookeeper(settings)
    # Looked up only where it matters: a plain start does not load the table.
    name = settings.get_str(_CLASS) if settings.is_set(_CLASS) else ""
    if not name:
        return None
    if name not in CLASSES:
        raise InvalidConfigError(
            f"{_CLASS}={name}: Java classes cannot be loaded, and without it every client could do everything; "
            f"{CLASSES[0]} and {CLASSES[1]} are built in"
        )
    return AuthorizerSettings(_super_users(settings), settings.get_bool("allow.everyone.if.no.acl.found"))


def authorizer_warnings(settings: BrokerSettings) -> list[str]:
    """A line for what is set and has no effect."""
    if settings.is_set(_SUPER_USERS) and settings.get_str(_SUPER_USERS) and not settings.get_str(_CLASS):
        return [f"{_SUPER_USERS} has no effect without {_CLASS}: every client can do everything"]
    return []


def _super_users(settings: BrokerSettings) -> frozenset[str]:
    """Between semicolons, since the names of certificates' owners have commas."""
    found = [part.strip() for part in settings.get_str(_SUPER_USERS).split(";")]
    try:
        return frozenset(str(Principal.parse(each)) for each in found if each)
    except UserError as problem:
        raise InvalidConfigError(f"{_SUPER_USERS}: {problem}") from problem


def _check_zookeeper(settings: BrokerSettings) -> None:
    """The rules are in the broker's own store, over its own connection: another one cannot be asked for."""
    for key in settings.static:
        if not key.startswith(known.AUTHORIZER_PREFIX):
            continue
        own = "zookeeper.connect" if key == _URL else key.removeprefix("authorizer.")
        if settings.get(key) not in (None, "", settings.get(own)):
            raise InvalidConfigError(
                f"{key} differs from {own}: rules are kept in the same ZooKeeper as everything else, over the same "
                f"connection; remove {key}, and move the rules there if they are elsewhere"
            )
