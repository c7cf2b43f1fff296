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
from braidlog.cli.options import listen_address, path_name, whole_number
from braidlog.cli.program import EXIT_FAILED, Parser
from braidlog.core.errors import BraidlogError, UserError


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
    parser.add_argument(
        "--workers",
        metavar="N",
        type=_worker_count,
        help="run so many brokers as one cluster, a process each, on consecutive ports: one a core",
    )
    parser.add_argument("--resize", action="store_true", help="the data has had another number of workers, on purpose")
    parser.add_argument("--log-format", choices=("text", "json"), help="sets braidlog.log.format")
    parser.add_argument(
        "--until-eof",
        action="store_true",
        help="also stop when standard input ends: for programs that start a broker and must not leave it behind",
    )


def _worker_count(text: str) -> int:
    from braidlog.local_cluster.workers import MOST_WORKERS

    return whole_number(text, 1, MOST_WORKERS, "a number of workers: a positive whole number")


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
    from braidlog.config.sources import load_settings
    from braidlog.core.compilation import uncompiled_notice
    from braidlog.logging_setup import set_up_logging

    if options.until_eof:
        threading.Thread(target=_stop_at_end_of_input, name="end of input", daemon=True).start()
    assignments = [*_shorthands(options), *options.set]
    loaded = load_settings(options.config, os.environ, assignments)
    set_up_logging(loaded.settings, process=os.environ.get("BRAIDLOG_WORKER", ""))
    if options.workers is not None:
        from braidlog.local_cluster.workers import run_workers

        shared = [] if options.config is None else ["--config", options.config]
        for each in assignments:
            shared += ["--set", each]
        return run_workers(loaded.settings, shared, options.workers, resize=options.resize)
    if options.resize:
        raise UserError("--resize goes with --workers")
    _refuse_workers_data(loaded.settings.log_dirs)
    notice = uncompiled_notice()
    if notice is not None:
        logging.getLogger("braidlog.server").warning("%s", notice)
    from braidlog.broker.allocator import keep_large_buffers
    from braidlog.broker.server import Server, run

    keep_large_buffers()
    return run(Server(loaded.settings, loaded.warnings))


def _refuse_workers_data(log_dirs: tuple[str, ...]) -> None:
    """Most brokers start without the module that knows what it is."""
    if any(os.path.exists(os.path.join(each, "workers.json")) for each in log_dirs):
        from braidlog.local_cluster.workers_directory import refuse_workers_data

        refuse_workers_data(log_dirs)


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
