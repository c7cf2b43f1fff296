"""The parser as plain data: commands, options, and what kind of word each takes; what completion is made from."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

# What a word may be, beyond fixed choices.
TOPIC: Final = "topic"
GROUP: Final = "group"
TRANSACTION: Final = "transaction"
PROFILE: Final = "profile"
# Names of settings: of clients, of brokers, of topics, or of what the line names with --topic, --broker or --group.
CLIENT_SETTING: Final = "client setting"
BROKER_SETTING: Final = "broker setting"
TOPIC_SETTING: Final = "topic setting"
RESOURCE_SETTING: Final = "resource setting"
FILE: Final = "file"
DIRECTORY: Final = "directory"
# Anything: nothing to offer.
TEXT: Final = "text"

# Names that a broker knows, by the word that `braidlog completion` prints them for.
BROKER_NAMES: Final = {TOPIC: "topics", GROUP: "groups", TRANSACTION: "transactions"}
# The same, with those that need no broker.
NAMES: Final = BROKER_NAMES | {
    PROFILE: "profiles",
    CLIENT_SETTING: "client-settings",
    BROKER_SETTING: "broker-settings",
    TOPIC_SETTING: "topic-settings",
    RESOURCE_SETTING: "resource-settings",
}

# The placeholder of an argument tells what it takes.
_KINDS: Final = {
    "TOPIC": TOPIC,
    "GROUP": GROUP,
    "TRANSACTIONAL-ID": TRANSACTION,
    "FILE": FILE,
    "DIR": DIRECTORY,
    "PROFILE": PROFILE,
}


class Placeholder(str):
    """Of an argument whose text does not tell what it takes: KEY=VALUE stands for settings of various things."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Self:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


class Takes(NamedTuple):
    """A word that an option or a command takes: one of `choices`, or of a kind, with an equals sign after it or not."""

    kind: str = TEXT
    choices: tuple[str, ...] = ()
    assigns: bool = False


class Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    # None for a switch.
    takes: Takes | None


class Command(NamedTuple):
    """`path` is how it is called, without the program's name; `takes` is what its arguments are."""

    path: tuple[str, ...]
    options: tuple[Option, ...]
    commands: tuple[tuple[str, str], ...]
    takes: Takes | None


def commands_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """The parser's command and, after it, those below."""
    options: list[Option] = []
    below: list[tuple[str, str]] = []
    parsers: dict[str, argparse.ArgumentParser] = {}
    takes: Takes | None = None
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers = dict(action.choices)
            below = [(choice.dest, _plain(choice.help)) for choice in action._choices_actions]
        elif action.option_strings:
            wants = None if action.nargs == 0 else _takes(action)
            options.append(Option(tuple(action.option_strings), _plain(action.help), wants))
        elif takes is None:
            takes = _takes(action)
    yield Command(path, tuple(options), tuple(below), takes)
    for name, each in parsers.items():
        yield from commands_of(each, (*path, name))


def _takes(action: argparse.Action) -> Takes:
    if action.choices is not None:
        return Takes(choices=tuple(map(str, action.choices)))
    if isinstance(action.metavar, Placeholder):
        return Takes(action.metavar.kind, assigns="=" in action.metavar)
    return Takes(_KINDS.get(str(action.metavar), TEXT))


def _plain(text: str | None) -> str:
    """Help as argparse would print it, on one line."""
    return " ".join((text or "").replace("%%", "%").split())
