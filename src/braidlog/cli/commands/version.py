"""`braidlog version`: what is installed, and whether it is compiled."""

from __future__ import annotations

import argparse
import platform

from braidlog.cli.options import add_output
from braidlog.cli.output import remark, show_one
from braidlog.core.compilation import is_compiled, uncompiled_notice
from braidlog.core.version import VERSION as BRAIDLOG_VERSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    show_one(
        {
            "braidlog": BRAIDLOG_VERSION,
            "compiled": is_compiled(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "protocol": "Kafka 3.9",
        },
        options.output,
    )
    notice = uncompiled_notice()
    if notice is not None:
        remark(notice)
    return 0
