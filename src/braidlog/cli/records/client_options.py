"""Settings of the clients that `produce` and `consume` use: the command line before its file before the defaults."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any, Final

from braidlog.cli.output import remark
from braidlog.cli.records.byte_formats import FORMATS

_CLIENT_ID: Final = "braidlog-cli"


def add_formats(parser: argparse.ArgumentParser) -> None:
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-format", choices=FORMATS, default="raw", help=f"how a {part} is written (default raw: its bytes)"
        )


def client_settings(options: argparse.Namespace, file: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """What a client is made with, once connected; `file` is what --config and -X said.

    `defaults` have underscores for dots.
    """
    return {
        "client.id": _CLIENT_ID,
        "request.timeout.ms": round(options.request_timeout * 1000),
        **{name.replace("_", "."): value for name, value in defaults.items()},
        **file,
        "bootstrap.servers": options.bootstrap,
    }


class _Remarks(logging.Handler):
    """What a client logs, as one line each for the person who waits for it."""

    def emit(self, record: logging.LogRecord) -> None:
        # Records that were not delivered are reported by the command itself.
        if record.module != "produce_response_handler":
            remark(" ".join(record.getMessage().split()))


def remark_on_logs() -> None:
    logger = logging.getLogger("braidlog")
    if not any(isinstance(handler, _Remarks) for handler in logger.handlers):
        logger.addHandler(_Remarks(logging.WARNING))
