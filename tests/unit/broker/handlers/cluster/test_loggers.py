"""Log levels at run time, with the verdicts of Kafka 3.9 on the same requests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from braidlog.broker.handlers.cluster.loggers import alter_loggers, describe_loggers, require_this_broker
from braidlog.config.broker import DYNAMIC_BROKER_LOGGER
from braidlog.controller.requests import ConfigChange, ConfigOperation
from braidlog.core.protocol_errors import InvalidConfigError, InvalidRequestError, ProtocolError

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
LOGGER = logging.getLogger("braidlog.for_tests.of_levels")
NAME = LOGGER.name


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    kept = [(logger, logger.level) for logger in (logging.root, logging.getLogger("braidlog"), LOGGER.parent, LOGGER)]
    logging.root.setLevel(logging.INFO)
    yield
    for logger, level in kept:
        assert logger is not None
        logger.setLevel(level)


def levels() -> dict[str, str | None]:
    return {entry.name: entry.value for entry in describe_loggers()}


def test_only_our_own_and_root_are_listed() -> None:
    logging.getLogger("somebody.else")
    logging.getLogger("braidlogger")
    names = list(levels())
    assert names == sorted(names)
    assert {"root", "braidlog", NAME} <= set(names)
    assert not {"somebody.else", "braidlogger"} & set(names)
    assert {entry.source for entry in describe_loggers()} == {DYNAMIC_BROKER_LOGGER}
    assert not any(entry.read_only or entry.synonyms or entry.type for entry in describe_loggers())


@pytest.mark.parametrize("level", ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_a_level_is_set_and_told_by_kafkas_name(level: str) -> None:
    alter_loggers([ConfigChange(NAME, SET, level)], False)
    assert levels()[NAME] == level
    severity = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}[level]
    assert LOGGER.isEnabledFor(severity)
    assert not LOGGER.isEnabledFor(severity - 1)


def test_a_deleted_level_is_that_of_the_parent() -> None:
    alter_loggers([ConfigChange("braidlog.for_tests", SET, "ERROR"), ConfigChange(NAME, SET, "DEBUG")], False)
    assert levels()[NAME] == "DEBUG"
    alter_loggers([ConfigChange(NAME, DELETE)], False)
    assert levels()[NAME] == "ERROR"
    alter_loggers([ConfigChange("braidlog.for_tests", DELETE), ConfigChange("root", SET, "WARN")], False)
    assert levels()[NAME] == levels()["root"] == "WARN"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ([ConfigChange(NAME, SET, "LOUD")], InvalidConfigError, "Valid log levels are DEBUG, ERROR, FATAL, INFO"),
        ([ConfigChange(NAME, SET, "debug")], InvalidConfigError, "not a supported log level"),
        ([ConfigChange(NAME, SET, "")], InvalidConfigError, "not a supported log level"),
        ([ConfigChange(NAME, SET, None)], InvalidRequestError, "has no value"),
        ([ConfigChange(NAME, APPEND, "DEBUG")], InvalidRequestError, "no list"),
        ([ConfigChange(NAME, SUBTRACT, "DEBUG")], InvalidRequestError, "no list"),
        ([ConfigChange("no.such", SET, "DEBUG")], InvalidConfigError, "Logger no.such does not exist!"),
        ([ConfigChange("braidlog.no.such", DELETE)], InvalidConfigError, "does not exist!"),
        ([ConfigChange("", SET, "DEBUG")], InvalidConfigError, "does not exist!"),
        ([ConfigChange("root", DELETE)], InvalidRequestError, "root logger is not allowed"),
        ([ConfigChange(NAME, SET, "WARN"), ConfigChange(NAME, SET, "INFO")], InvalidRequestError, "twice"),
    ],
)
def test_refused_changes(changes: list[ConfigChange], error: type[ProtocolError], message: str) -> None:
    with pytest.raises(error, match=message):
        alter_loggers(changes, False)


def test_all_or_nothing_and_validate_only() -> None:
    with pytest.raises(InvalidConfigError):
        alter_loggers([ConfigChange(NAME, SET, "FATAL"), ConfigChange("no.such", SET, "FATAL")], False)
    assert levels()[NAME] == "INFO"
    alter_loggers([ConfigChange(NAME, SET, "FATAL")], True)
    assert levels()[NAME] == "INFO"


def test_a_broker_answers_for_itself_only() -> None:
    require_this_broker("1", 1)
    for name in ("", "2", "x"):
        with pytest.raises(InvalidRequestError):
            require_this_broker(name, 1)
