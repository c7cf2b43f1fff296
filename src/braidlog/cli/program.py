"""The command line's parser and its one way of failing: a line on standard error and an exit code.

    0   done        1   failed        2   the command was not understood
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from braidlog.cli import completion, configs, consume, doctor, log, produce, serve, topics, version
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

Command = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong and where to read on."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="braidlog", description="A distributed commit log that speaks the Kafka protocol.", allow_abbrev=False
    )
    nouns = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    serving = nouns.add_parser("serve", help="run a broker until it is told to stop", allow_abbrev=False)
    serve.add_arguments(serving)
    for module in (topics, configs, produce, consume, log, doctor):
        module.add_parser(nouns)
    completion.add_parser(nouns, build_parser)
    version.add_parser(nouns)
    return parser


def main(arguments: Sequence[str]) -> int:
    parser = build_parser()
    options = parser.parse_args(arguments)
    command: Command = options.run
    try:
        return command(options)
    except ProtocolError as problem:
        return _fail(f"{problem.message or 'the broker refused'} [{problem.name}]")
    except (BraidlogError, OSError) as problem:
        return _fail(str(problem))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _fail(message: str) -> int:
    print(f"braidlog: {message}", file=sys.stderr)
    return EXIT_FAILED
