"""Numbers that no field has room for, and what is no number: a sentence each, whatever the option."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from braidlog.cli.program import build_parser, main
from support.broker import Broker
from support.confluent import create_topic

# The placeholder of an option says what it takes; a new one belongs into one of the two.
NUMBERS = {"N", "ID", "SECONDS", "TIME", "DURATION", "WHERE", "HOST:PORT", "HOST:FIRST_PORT", "SIZE", "1:2,2:3", "IDS"}
WORDS = {
    "ADDRESS", "CLIENT-ID", "DIR", "FILE", "GROUP", "HOST", "HOST:PORT[/PATH]", "KEY", "KEY=VALUE", "NAME",
    "NAME=VALUE", "PRINCIPAL", "PROFILE", "STATE", "TEXT", "TOKEN-ID", "TOPIC", "TRANSACTIONAL-ID", "TYPE", "URL",
    "USER", "NAME=LEVEL",
}  # fmt: skip
NONSENSE = (str(10**22), "-1", "abc", "", "²", "9" * 5000)

# What a command needs besides, to come as far as the value; `TOPIC` stands for one that exists.
NEEDED = {
    ("topics", "create"): ["TOPIC"],
    ("topics", "alter"): ["TOPIC", "--partitions", "1"],
    ("topics", "offsets"): ["TOPIC"],
    ("delete-records",): ["TOPIC"],
    ("perf", "produce"): ["TOPIC", "--records", "1"],
    ("perf", "consume"): ["TOPIC"],
    ("configs", "describe"): ["--brokers"],
    ("configs", "alter"): ["--brokers", "--set", "log.retention.ms=1000", "--validate-only"],
    ("produce",): ["TOPIC", "--value", "x"],
    ("consume",): ["TOPIC", "--exit-at-end"],
    ("groups", "describe"): ["no-such-group"],
    ("groups", "reset-offsets"): ["no-such-group", "--topic", "TOPIC", "--to-earliest"],
    ("groups", "delete"): ["no-such-group"],
    ("topics", "delete"): ["no-such-topic"],
    ("transactions", "describe"): ["no-such-id"],
    ("transactions", "producers"): ["--topic", "TOPIC"],
    ("transactions", "abort"): ["--topic", "TOPIC", "--partition", "0", "--start-offset", "0", "--yes"],
    ("users", "create"): ["nobody", "--password-env", "NO_SUCH_VARIABLE"],
    ("users", "alter"): ["nobody", "--password-env", "NO_SUCH_VARIABLE"],
    ("users", "delete"): ["nobody"],
    ("quotas", "set"): ["--user", "nobody"],
    ("features", "upgrade"): ["--dry-run"],
    ("features", "downgrade"): ["--dry-run"],
    ("pipeline", "lag"): ["--group", "no-such-group"],
    ("pipeline", "replay"): ["/no/such/checkpoint", "--to-earliest"],
    ("log", "dump"): ["/no/such/file.log"],
    ("completion",): ["topics"],
}
# Of options that shut each other out only one can be given.
ALTERNATIVES = {"--broker": "--brokers", "--broker-loggers": "--brokers"} | dict.fromkeys(
    ("--to-offset", "--shift-by", "--to-datetime", "--by-duration"), "--to-earliest"
)


class Given(NamedTuple):
    path: tuple[str, ...]
    flag: str


def options_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[Given, str]]:
    """Every option that takes a free word, with its placeholder."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from options_of(below, (*path, name))
        elif action.option_strings and action.nargs != 0 and action.choices is None:
            yield Given(path, action.option_strings[0]), str(action.metavar)


PLACEHOLDERS = dict(options_of(build_parser()))
NUMERIC = [given for given, placeholder in PLACEHOLDERS.items() if placeholder in NUMBERS]


def exit_code(words: list[str]) -> int | str | None:
    try:
        return main(words)
    except SystemExit as stopped:
        return stopped.code


def test_every_placeholder_says_whether_it_is_a_number() -> None:
    assert set(PLACEHOLDERS.values()) <= NUMBERS | WORDS
    assert len(NUMERIC) > 40


@pytest.fixture(scope="session")
def any_topic(broker: Broker) -> str:
    """For all that only needs one that exists: of the broker's life, as a worker may come back to this module."""
    name = f"numbers-{os.getpid()}"
    create_topic(broker.bootstrap, name, 1)
    return name


@pytest.mark.parametrize("given", NUMERIC, ids=lambda given: " ".join((*given.path, given.flag)))
def test_no_number_is_a_traceback(
    given: Given, broker: Broker, any_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, so that whatever is not told in a sentence fails the test by itself."""
    needed = list(NEEDED.get(given.path, ()))
    if given.flag in ALTERNATIVES and ALTERNATIVES[given.flag] in needed:
        needed.remove(ALTERNATIVES[given.flag])
    words = [*given.path, *(any_topic if word == "TOPIC" else word for word in needed)]
    if given.path[0] not in ("serve", "log") and given.flag != "--bootstrap":
        words += ["--bootstrap", broker.bootstrap]
    for value in NONSENSE:
        capfd.readouterr()
        code = exit_code([*words, f"{given.flag}={value}"])
        reported = capfd.readouterr().err
        assert "Traceback" not in reported
        assert code in (0, 1, 2)
        if code and given.path != ("doctor",):
            line = reported.splitlines()[-1]
            assert line.startswith("braidlog"), reported
            assert len(line) < 1000 or given.flag == "--bootstrap"
        if value in ("abc", "²", "9" * 5000) and given.flag != "--bootstrap":
            assert code == 2, f"{value!r}: {reported}"


def test_the_program_itself_refuses(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "99999999999").failed("up to 2147483647", code=2)
    cli("consume", topic, "--offset", "9" * 23).failed("is not an offset", code=2)
    cli("produce", topic, "--value", "x", "--timestamp", "9" * 23).failed("milliseconds since 1970", code=2)
    cli("topics", "list", "--request-timeout", "1e22").failed("positive number of seconds", code=2)
    cli("topics", "list", "-X", "request.timeout.ms=soon").failed("expected a whole number", code=2)
    cli("topics", "list", "-X", "lingr.ms=5").failed("did you mean linger.ms?", code=2)
    # Twice as long is how long a record may take, which has to fit as well.
    cli("produce", topic, "--value", "x", "--request-timeout", "2147483").succeeded()
    cli("serve", "--listen", "127.0.0.1:-1").failed("a port", code=2)
    cli("serve", "--listen", "127.0.0.1:" + "9" * 23).failed("a port", code=2)
