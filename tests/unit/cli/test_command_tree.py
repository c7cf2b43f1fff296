from __future__ import annotations

import pytest

from braidlog.cli.command_tree import DIRECTORY, FILE, GROUP, TOPIC, TRANSACTION, Command, Takes, commands_of
from braidlog.cli.program import NOUNS, build_parser


@pytest.fixture(scope="module")
def commands() -> dict[tuple[str, ...], Command]:
    return {command.path: command for command in commands_of(build_parser())}


def option(command: Command, flag: str) -> Takes | None:
    (found,) = (each for each in command.options if flag in each.flags)
    return found.takes


def test_the_tree_knows_what_each_word_is(commands: dict[tuple[str, ...], Command]) -> None:
    assert [name for name, _ in commands[()].commands] == list(NOUNS)
    assert [name for name, _ in commands["topics",].commands] == [
        "create", "list", "describe", "offsets", "alter", "delete"
    ]  # fmt: skip
    assert commands["consume",].takes == Takes(TOPIC)
    assert commands["topics", "delete"].takes == Takes(TOPIC)
    assert commands["log", "dump"].takes == Takes(FILE)
    assert commands["log", "verify"].takes == Takes(DIRECTORY)
    assert option(commands["configs", "alter"], "--topic") == Takes(TOPIC)
    assert option(commands["configs", "alter"], "--group") == Takes(GROUP)
    assert option(commands["serve",], "--data") == Takes(DIRECTORY)
    assert commands["groups", "describe"].takes == Takes(GROUP)
    assert commands["transactions", "describe"].takes == Takes(TRANSACTION)
    assert option(commands["consume",], "--isolation") == Takes(choices=("read_uncommitted", "read_committed"))
    assert option(commands["consume",], "--exit-at-end") is None
