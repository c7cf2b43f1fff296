"""`braidlog completion bash|zsh|fish`: a script for the shell, made from the parser itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from braidlog.cli import completion_bash, completion_fish, completion_zsh
from braidlog.cli.command_tree import GROUP, NAMES, TOPIC, commands_of
from braidlog.cli.options import add_connection, connect
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError

if TYPE_CHECKING:
    from braidlog.client.cluster import Cluster

# A person waits at the prompt.
_NAMES_TIMEOUT_S: Final = 1.0

_EPILOG: Final = """\
switch it on:
  bash   echo 'source <(braidlog completion bash)' >> ~/.bashrc
  zsh    echo 'source <(braidlog completion zsh)' >> ~/.zshrc      (after compinit)
  fish   braidlog completion fish > ~/.config/fish/completions/braidlog.fish
"""

_SCRIPTS: Final = {
    "bash": completion_bash.script,
    "zsh": completion_zsh.script,
    "fish": completion_fish.script,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "shell",
        choices=(*_SCRIPTS, *NAMES.values()),
        metavar="SHELL",
        help="bash, zsh or fish; topics, groups and transactions print names, for the scripts",
    )
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.shell in NAMES.values():
        return _print_names(options)
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


def _names(what: str, cluster: Cluster) -> list[str]:
    if what == NAMES[TOPIC]:
        return [topic.name or "" for topic in cluster.metadata(None)]
    from braidlog.client.admin.routing import Routing

    if what == NAMES[GROUP]:
        from braidlog.client.admin.groups import GroupCalls

        return [group.group_id for group in GroupCalls(Routing(cluster)).list_groups()]
    from braidlog.client.admin.transactions import TransactionCalls

    return [each.transactional_id for each in TransactionCalls(Routing(cluster)).list_transactions()]
