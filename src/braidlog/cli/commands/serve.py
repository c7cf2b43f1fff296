"""`braidlog serve`: run a broker until it is stopped."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading

from braidlog.cli.command_tree import BROKER_SETTING, Placeholder
from braidlog.cli.interrupts import exit_code_of
from braidlog.cli.options import listen_address, path_name
from braidlog.cli.program import EXIT_FAILED, Parser
from braidlog.core.errors import BraidlogError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=path_name,
        help="settings in Kafka's server.properties syntax, by Kafka's names",
    )
    parser.add_argument("--data", metavar="DIR", type=path_name, help="where the logs go (sets log.dirs)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=listen_address,
        help="where clients connect; port 0 picks a free one (sets listeners)",
    )
    parser.add_argument(
        "--set",
        metavar=Placeholder("KEY=VALUE", BROKER_SETTING),
        action="append",
        default=[],
        help="any other setting; may be repeated",
    )
    parser.add_argument("--log-format", choices=("text", "json"), help="sets braidlog.log.format")
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="also stop when standard input ends: for programs that start a broker and must not leave it behind",
    )


def main(arguments: list[str]) -> int:
    parser = Parser(prog="braidlog serve", description="Run a broker until it is stopped.")
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        return _serve(options)
    except BraidlogError as problem:
        return _fail(str(problem))
    except KeyboardInterrupt as interruption:
        return exit_code_of(interruption)
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        return _fail(f"cannot serve: {where}{problem.strerror or problem}")


def _fail(message: str) -> int:
    for line in message.splitlines():
        print(f"braidlog: {line}", file=sys.stderr)
    return EXIT_FAILED


def _serve(options: argparse.Namespace) -> int:
    from braidlog.broker.allocator import keep_large_buffers
    from braidlog.broker.server import Server, run
    from braidlog.config.sources import load_settings
    from braidlog.core.compilation import uncompiled_notice
    from braidlog.logging_setup import set_up_logging

    if options.until_eof:
        threading.Thread(target=_stop_at_end_of_input, name="end of input", daemon=True).start()
    loaded = load_settings(options.config, os.environ, [*_shorthands(options), *options.set])
    set_up_logging(loaded.settings)
    notice = uncompiled_notice()
    if notice is not None:
        logging.getLogger("braidlog.server").warning("%s", notice)
    keep_large_buffers()
    return run(Server(loaded.settings, loaded.warnings))


def _stop_at_end_of_input() -> None:
    """Whoever started this holds the other end of the pipe; however that ends, even by SIGKILL, the pipe is closed."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _shorthands(options: argparse.Namespace) -> list[str]:
    assignments: list[str] = []
    if options.data:
        assignments.append(f"log.dirs={options.data}")
    if options.listen:
        assignments.append(f"listeners=PLAINTEXT://{options.listen}")
    if options.log_format:
        assignments.append(f"braidlog.log.format={options.log_format}")
    return assignments
