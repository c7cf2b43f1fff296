"""`braidlog completion bash|zsh|fish`: a script for the shell, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from braidlog.cli.command_tree import (
    BROKER_NAMES,
    BROKER_SETTING,
    CLIENT_SETTING,
    GROUP,
    NAMES,
    PROFILE,
    TOPIC,
    TOPIC_SETTING,
    commands_of,
)
from braidlog.cli.completion_scripts import bash_script, fish_script, zsh_script
from braidlog.cli.options import add_connection, connect
from braidlog.config.setting import READ_ONLY
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.protocol_errors import ProtocolError

if TYPE_CHECKING:
    from braidlog.client.admin.cluster_connection import ClusterConnection

# A person waits at the prompt.
_NAMES_TIMEOUT_S: Final = 1.0

_EPILOG: Final = """\
switch it on:
  bash   echo 'source <(braidlog completion bash)' >> ~/.bashrc
  zsh    echo 'source <(braidlog completion zsh)' >> ~/.zshrc      (after compinit)
  fish   braidlog completion fish > ~/.config/fish/completions/braidlog.fish
"""

_SCRIPTS: Final = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "shell",
        choices=(*_SCRIPTS, *NAMES.values()),
        metavar="SHELL",
        help="bash, zsh or fish; topics, groups, transactions, profiles and settings print names, for the scripts",
    )
    parser.add_argument("--line", metavar="TEXT", default="", help="the line that is being completed, for the scripts")
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.shell in BROKER_NAMES.values():
        return _print_names(options)
    if options.shell in NAMES.values():
        print("".join(f"{name}\n" for name in sorted(_known_names(options.shell, options.line))), end="")
        return 0
    from braidlog.cli.program import build_parser

    print(_SCRIPTS[options.shell](list(commands_of(build_parser()))), end="")
    return 0


def _print_names(options: argparse.Namespace) -> int:
    """Names for the shell to offer; no broker, no names, no noise."""
    options.request_timeout = _NAMES_TIMEOUT_S
    try:
        with connect(options) as cluster:
            names = sorted(_names(options.shell, cluster))
    except (BraidlogError, ProtocolError):
        return 0
    print("".join(f"{name}\n" for name in names), end="")
    return 0


def _known_names(what: str, line: str) -> Iterable[str]:
    """Names that need no broker; the line tells which of them can be meant."""
    if what == NAMES[PROFILE]:
        from braidlog.cli.commands.profiles import read_profiles

        try:
            return read_profiles()
        except UserError:
            return ()
    if what == NAMES[CLIENT_SETTING]:
        return _client_settings(line)
    from braidlog.config import known

    if what == NAMES[TOPIC_SETTING]:
        return known.topic_settings()
    if what == NAMES[BROKER_SETTING]:
        return [each.key for each in known.broker_settings() if not each.internal]
    words = line.replace("=", " ").split()
    if "--topic" in words:
        return known.topic_settings()
    if "--group" in words:
        return known.group_settings()
    if "--broker-loggers" in words:
        return ()
    return [each.key for each in known.broker_settings() if each.mode != READ_ONLY and not each.internal]


def _client_settings(line: str) -> Iterable[str]:
    """Setting names of the client that the command uses."""
    from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, definitions

    words = line.split()[1:3]
    kind = PRODUCER if "produce" in words else CONSUMER if "consume" in words else ADMIN
    return [name for name, setting in definitions(kind).items() if not setting.no_effect and not setting.internal]


def _names(what: str, cluster: ClusterConnection) -> list[str]:
    if what == NAMES[TOPIC]:
        return [topic.name for topic in cluster.metadata(None)]
    from braidlog.client.admin.admin import admin_over

    if what == NAMES[GROUP]:
        return [group.group_id for group in admin_over(cluster).list_groups()]

    return [each.transactional_id for each in admin_over(cluster).list_transactions()]
