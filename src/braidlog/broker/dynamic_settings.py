"""The broker's settings as they are now: who needs a value at run time asks here, not a copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from braidlog.config.broker import BrokerSettings
from braidlog.config.unsupported_settings import unprotected, without_effect

log = logging.getLogger("braidlog.settings")


class DynamicBrokerSettings:
    def __init__(self, settings: BrokerSettings) -> None:
        self.current = settings
        self._listeners: list[Callable[[BrokerSettings, list[str]], None]] = []

    def on_change(self, listener: Callable[[BrokerSettings, list[str]], None]) -> None:
        """`listener(settings, changed keys)` is called after each change."""
        self._listeners.append(listener)

    def apply_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Take over what the cluster says of all brokers and of this one."""
        changed, complaints = self.current.with_dynamic(default=default, broker=broker)
        before = unprotected(self.current)
        for complaint in (*complaints, *(line for line in unprotected(changed) if line not in before)):
            log.warning("dynamic setting: %s", complaint)
        keys = self.current.changed_keys(changed)
        self.current = changed
        if keys:
            log.info("settings changed at run time: %s", ", ".join(keys))
            idle = [key for key in without_effect(changed) if key in keys]
            if idle:
                log.info("of these without effect here (docs/SETTINGS.md says why): %s", ", ".join(idle))
            for listener in self._listeners:
                listener(changed, keys)
