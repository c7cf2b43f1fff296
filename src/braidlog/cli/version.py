"""`braidlog version`: what is installed, and whether it is compiled."""

from __future__ import annotations

import argparse
import platform

from braidlog import __version__
from braidlog.cli.options import add_output
from braidlog.cli.output import show_one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from braidlog.wire import reader

    compiled = not (reader.__file__ or "").endswith(".py")
    show_one(
        {
            "braidlog": __version__,
            "compiled": compiled,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "protocol": "Kafka 3.9",
        },
        options.output,
    )
    return 0
