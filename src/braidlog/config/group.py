"""What a group may set for itself, within the bounds that the broker sets (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.setting import Setting
from braidlog.core.protocol_errors import InvalidConfigError

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

# Group setting -> the broker settings that give the least, the default and the most.
BOUNDS: Final = {
    SESSION_TIMEOUT: (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    HEARTBEAT_INTERVAL: (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
}


def broker_default(setting: Setting, broker: BrokerSettings) -> int:
    """What the broker gives a group that does not set this."""
    return broker.get_int(BOUNDS[setting.key][1])


def validate_overrides(overrides: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raises InvalidConfigError for an unknown key, a bad value or one out of bounds, and for a session that is over
    before its next heartbeat is due."""
    settings = known.group_settings()
    values = {key: broker_default(setting, broker) for key, setting in settings.items()}
    for key, text in overrides.items():
        if key not in settings:
            raise InvalidConfigError(f"Unknown group config name: {key} (a group has {', '.join(sorted(settings))})")
        value = values[key] = _number(settings[key], text)
        least, _, most = BOUNDS[key]
        if value < broker.get_int(least):
            raise InvalidConfigError(
                f"{key} ({value}) must be greater than or equal to {least} ({broker.get_int(least)})"
            )
        if value > broker.get_int(most):
            raise InvalidConfigError(f"{key} ({value}) must be less than or equal to {most} ({broker.get_int(most)})")
    session, heartbeat = values[SESSION_TIMEOUT], values[HEARTBEAT_INTERVAL]
    if overrides and session <= heartbeat:
        raise InvalidConfigError(
            f"{SESSION_TIMEOUT} ({session}) must be greater than {HEARTBEAT_INTERVAL} ({heartbeat})"
        )


def usable_overrides(overrides: Mapping[str, str]) -> tuple[dict[str, int], list[str]]:
    """Typed values of what the store has of a group, and a complaint for each entry that had to be left out.

    It was checked when it was written, perhaps with other bounds: as in Kafka the value that was accepted then stays.
    """
    settings = known.group_settings()
    usable: dict[str, int] = {}
    complaints: list[str] = []
    for key, text in overrides.items():
        if key not in settings:
            complaints.append(f"no group has a setting {key}; the stored value is ignored")
            continue
        try:
            usable[key] = _number(settings[key], text)
        except InvalidConfigError as problem:
            complaints.append(f"the stored value is ignored: {problem.message}")
    return usable, complaints


def _number(setting: Setting, text: str) -> int:
    value = setting.parse(text)
    if not isinstance(value, int):
        raise TypeError(f"{setting.key} is {value!r}, not a whole number")
    return value
