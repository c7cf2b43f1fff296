"""The command line's parser and its one way of failing: a line on standard error and an exit code.

    0   done        1   failed        2   the command was not understood        128 + N   ended by signal N

Only the module of the noun that was asked for is imported, so that a command starts as quickly as what it does allows.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

from braidlog.cli.cli_terms import in_cli_terms
from braidlog.cli.interrupts import exit_code_of, interrupts_heard
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

# A noun's module is `braidlog.cli.commands.<noun>` (with an underscore for a dash), or in a package with what it is
# made of, and offers `add_arguments(parser)`, which sets `run` for what it parses.
NOUNS: Final = {
    "serve": "run a broker until it is stopped",
    "cluster": "run several brokers on one ZooKeeper, see how a cluster is",
    "top": "what a cluster does right now: rates, lag, replicas out of sync",
    "topics": "create, list, describe, alter and delete topics, see their offsets",
    "configs": "read and change settings of topics, brokers and groups",
    "produce": "write records to a topic",
    "consume": "read records of a topic",
    "groups": "list and describe groups, reset their offsets, delete them",
    "delete-records": "delete the oldest records of partitions",
    "brokers": "the brokers of a cluster, and which of them answer",
    "reassign": "move replicas between brokers: for one that is new, or leaves",
    "elect": "elect leaders: preferred ones, or unclean ones where nothing else helps",
    "log-dirs": "the data directories of brokers: how full they are, and with what",
    "users": "who may log in with SCRAM, and with which password",
    "quotas": "how much users, client ids and addresses may use",
    "features": "which protocols the brokers have agreed to use, Kafka's among them or not",
    "tokens": "delegation tokens, with which programs log in in a user's name",
    "acls": "who may do what to topics, groups and other resources",
    "certs": "certificates for trying TLS out",
    "transactions": "list and describe transactions, find and abort hanging ones",
    "perf": "measure how fast topics are written and read from here",
    "pipeline": "data pipelines on Spark: make, run, look after and replay them",
    "log": "look into, check and repair the files of a partition",
    "doctor": "find out what is wrong, and what to do about it",
    "profiles": "settings of clients under a name, for --profile",
    "completion": "completion for bash, zsh or fish",
    "version": "what is installed",
}

_IN_PACKAGES: Final = {"top": "braidlog.cli.watching.top"}

_EXAMPLES: Final = """\
first steps:
  braidlog serve --data ./data                      a broker on 127.0.0.1:9092
  braidlog topics create orders --partitions 3
  echo 'k1:hello' | braidlog produce orders --key-separator :
  braidlog consume orders --offset earliest --exit-at-end
  braidlog doctor --data ./data                     when something is wrong
  braidlog cluster up                               three brokers and a ZooKeeper, until Ctrl-C

Commands talk to the broker of --bootstrap (127.0.0.1:9092, or $BRAIDLOG_BOOTSTRAP), or of a --profile; --output json is
for scripts.
Exit codes: 0 done, 1 failed, 2 the command was not understood, 130 or 143 interrupted (Ctrl-C, SIGTERM).
"""

Command = Callable[[argparse.Namespace], int]


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            # The names of commands stand further in than argparse reckons, and the longest would wrap.
            self._action_max_length += 2


class Parser(argparse.ArgumentParser):
    """Takes no abbreviations, and says in one line what is wrong and where to read on."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **settings)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def build_parser(noun: str | None = None) -> Parser:
    """The whole parser, or one that knows the arguments of a single noun and of the others their names."""
    parser = Parser(
        prog="braidlog",
        description="A commit log that speaks the Kafka protocol.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--version", action="store_true", help="the same as the command version")
    nouns = parser.add_subparsers(metavar="COMMAND", dest="noun", title="commands")
    for name, summary in NOUNS.items():
        below = nouns.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if noun in (None, name):
            module = _IN_PACKAGES.get(name) or f"braidlog.cli.commands.{name.replace('-', '_')}"
            import_module(module).add_arguments(below)
    return parser


def main(arguments: Sequence[str]) -> int:
    words = list(arguments)
    if words[:1] == ["serve"]:
        from braidlog.cli.commands.serve import main as serve

        return serve(words[1:])
    if words == ["--version"]:
        words = ["version"]
    parser = build_parser(words[0] if words and words[0] in NOUNS else "")
    options = parser.parse_args(words)
    if options.noun is None:
        parser.error("say what to do")
    with interrupts_heard():
        return run(options.run, options)


def leave(code: int) -> NoReturn:
    """End the process of a command that is done.

    What was registered for the end is done as ever; only the interpreter is not taken apart, which would take longer
    than many a command (40 ms of 200).
    """
    # As the interpreter begins its own end: threads that must come to theirs, then what was registered.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run(command: Command, options: argparse.Namespace) -> int:
    try:
        code = command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has seen enough; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except ProtocolError as problem:
        return _fail(f"{problem.message or 'the broker refused'} [{problem.name}]")
    except BraidlogError as problem:
        return _fail(str(problem), EXIT_USAGE if _is_wrong_setting(problem) else EXIT_FAILED)
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        if not where and problem.errno == errno.ENOSPC:
            where = "cannot write the output: "
        return _fail(f"{where}{problem.strerror or problem}")
    except KeyboardInterrupt as interruption:
        return exit_code_of(interruption)


def _is_wrong_setting(problem: BraidlogError) -> bool:
    """Whether a client refused its settings before it did anything: -X, --bootstrap or a file is wrong."""
    from braidlog.client.errors import SettingError

    return isinstance(problem, SettingError)


def _fail(message: str, code: int = EXIT_FAILED) -> int:
    print(f"braidlog: {' '.join(in_cli_terms(message).split())}", file=sys.stderr)
    return code
