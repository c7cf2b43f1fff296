"""Levels of the broker's own loggers, read and changed at run time (KIP-412); a restart forgets every change.

Levels have the names of Log4j, which is what tools for Kafka know. A logger is there once the module that writes to it
is imported; `braidlog` stands for all of them, and `root` for the libraries too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from braidlog.config.broker import DYNAMIC_BROKER_LOGGER
from braidlog.config.describe import ConfigEntry
from braidlog.config.setting import UNKNOWN
from braidlog.controller.requests import ConfigChange, ConfigOperation
from braidlog.core.protocol_errors import InvalidConfigError, InvalidRequestError

ROOT: Final = "root"
OURS: Final = "braidlog"

# Highest first. Nothing here logs below DEBUG, so TRACE shows what DEBUG does.
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}

log = logging.getLogger("braidlog.settings")


def require_this_broker(name: str, broker_id: int) -> None:
    """A broker can tell and change its own loggers only."""
    if not name:
        raise InvalidRequestError("name a broker by its id: each has loggers of its own")
    if name != str(broker_id):
        raise InvalidRequestError(f"this is broker {broker_id}; ask broker {name} itself")


def describe_loggers() -> list[ConfigEntry]:
    """Every logger with the level that counts for it, sorted by name."""
    return [
        ConfigEntry(
            name=name,
            value=_level_name(_logger(name).getEffectiveLevel()),
            source=DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            type=UNKNOWN,
            documentation="",
            synonyms=(),
        )
        for name in sorted(_names())
    ]


def alter_loggers(changes: Sequence[ConfigChange], validate_only: bool) -> None:
    """Set levels, or take them away again so that the parent's count; all of them, or none if one is refused."""
    _validate(changes)
    if validate_only:
        return
    for key, operation, value in changes:
        logger = _logger(key)
        if operation == ConfigOperation.SET and value is not None:
            log.info("log level of %s: %s, was %s", key, value, _level_name(logger.getEffectiveLevel()))
            logger.setLevel(LEVELS[value])
        else:
            log.info("log level of %s: that of its parent, was %s", key, _level_name(logger.getEffectiveLevel()))
            logger.setLevel(logging.NOTSET)


def _validate(changes: Sequence[ConfigChange]) -> None:
    names = _names()
    seen: set[str] = set()
    for key, operation, value in changes:
        if key in seen:
            raise InvalidRequestError(f"{key} is altered twice in one request: send it once")
        seen.add(key)
        if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequestError(f"{key}: a log level can be set or deleted; it is no list to append to")
        if operation == ConfigOperation.SET:
            if value is None:
                raise InvalidRequestError(f"{key} has no value: only a deletion goes without")
            if value not in LEVELS:
                raise InvalidConfigError(
                    f"Cannot set the log level of {key} to {value} as it is not a supported log level. "
                    f"Valid log levels are {', '.join(sorted(LEVELS))}"
                )
        if key not in names:
            raise InvalidConfigError(f"Logger {key} does not exist! (It may begin to once the broker uses it.)")
        if operation == ConfigOperation.DELETE and key == ROOT:
            raise InvalidRequestError("Removing the log level of the root logger is not allowed: set another one")


def _names() -> set[str]:
    """Parents without messages of their own are among them, so that a level can be set for a whole package."""
    ours = (name for name in list(logging.root.manager.loggerDict) if name.startswith(f"{OURS}."))
    return {ROOT, OURS, *ours}


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_name(level: int) -> str:
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
