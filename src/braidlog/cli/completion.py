"""`braidlog completion bash|zsh|fish`: a script for the shell, made from the parser itself."""

from __future__ import annotations

import argparse
from typing import Final

from braidlog.cli import completion_bash, completion_fish, completion_zsh
from braidlog.cli.command_tree import commands_of
from braidlog.cli.options import add_connection
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError

# A person waits at the prompt.
_TOPICS_TIMEOUT_S: Final = 1.0

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
        choices=(*_SCRIPTS, "topics"),
        metavar="SHELL",
        help="bash, zsh or fish; topics prints their names, for the scripts",
    )
    add_connection(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.shell == "topics":
        return _print_topics(options.bootstrap)
    from braidlog.cli.program import build_parser

    print(_SCRIPTS[options.shell](list(commands_of(build_parser()))), end="")
    return 0


def _print_topics(bootstrap: str) -> int:
    """Names for the shell to offer; no broker, no names, no noise."""
    from braidlog.client.cluster import Cluster

    try:
        with Cluster(bootstrap, _TOPICS_TIMEOUT_S) as cluster:
            names = sorted(topic.name or "" for topic in cluster.metadata(None))
    except (BraidlogError, ProtocolError):
        return 0
    print("".join(f"{name}\n" for name in names), end="")
    return 0
