"""Settings that protect something in Kafka and nothing here: a broker does not start with one of them.

protecting    says who may do what, what is asked of clients, how much they may do, or to which cluster the broker
              belongs; without effect it would leave the broker open, or alone, unnoticed
allowed       named in `braidlog.allow.settings.without.effect`: the broker starts and warns
all others    without effect are listed in one line at start
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidConfigError

_ALLOWED: Final = "braidlog.allow.settings.without.effect"


class UnsupportedSetting(NamedTuple):
    key: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}"


class UnsupportedSettingsError(UserError):
    """A line for each setting that keeps the broker from starting; the rest is kept for who looks further."""

    def __init__(self, refusals: list[UnsupportedSetting], settings: BrokerSettings, warnings: list[str]) -> None:
        super().__init__("\n".join(map(str, refusals)))
        self.refusals = refusals
        self.settings = settings
        self.warnings = warnings


def find_unsupported(settings: BrokerSettings, places: Mapping[str, str]) -> list[UnsupportedSetting]:
    """What keeps a broker from starting; `places` says where each setting was written."""
    return [_refusal(key, places.get(key, key)) for key in _refused(settings, settings.static)]


def check_changes(changes: Mapping[str, str], settings: BrokerSettings) -> None:
    """Raises InvalidConfigError for a change at run time that would protect nothing.

    Whether the values are good is not looked at here.
    """
    try:
        changed = BrokerSettings(settings.static, dynamic_broker=changes)
    except InvalidConfigError:
        return
    refused = _refused(changed, changes)
    if refused:
        raise InvalidConfigError("; ".join(map(_reason, refused)))


def unprotected(settings: BrokerSettings) -> list[str]:
    """A line for each protecting setting that is set without effect, be it allowed or stored by an older version."""
    return [_reason(key) for key in _protecting(settings, _set_keys(settings))]


def without_effect(settings: BrokerSettings) -> list[str]:
    """The other settings that are set without effect, sorted."""
    keys = _set_keys(settings)
    protecting = _protecting(settings, keys)
    return sorted(key for key in keys if key not in protecting and _has_no_effect(key))


def _set_keys(settings: BrokerSettings) -> list[str]:
    return [*dict.fromkeys((*settings.static, *settings.dynamic_default, *settings.dynamic_broker))]


def _has_no_effect(key: str) -> bool:
    setting = known.broker_setting_for(key)
    return setting is not None and setting.no_effect is not None


def _refused(settings: BrokerSettings, keys: Iterable[str]) -> list[str]:
    protecting = _protecting(settings, keys)
    # Read only where it matters: a plain start does not load the table.
    allowed = settings.get_list(_ALLOWED) if protecting else ()
    if "*" in allowed:
        return []
    return [key for key in protecting if key not in allowed and known.listener_base(key) not in allowed]


def _protecting(settings: BrokerSettings, keys: Iterable[str]) -> list[str]:
    """Those of the keys whose value asks for a protection that is not there."""
    found = []
    for key in keys:
        setting = known.broker_setting_for(key)
        if setting is None or setting.no_effect is None or setting.protects is None:
            continue
        value = settings.get(key)
        harmless = setting.harmless(value, settings) if setting.harmless is not None else value == setting.default
        if not harmless and value not in (None, "", ()):
            found.append(key)
    return found


def _reason(key: str) -> str:
    setting = known.broker_setting_for(key)
    assert setting is not None
    return f"{key} has no effect ({setting.no_effect}): {setting.protects}"


def _refusal(key: str, place: str) -> UnsupportedSetting:
    return UnsupportedSetting(
        key, f"{place}: {_reason(key)}", f"remove it, or start without what it asks for: {_ALLOWED}={key}"
    )
