"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from typing import Final

from braidlog.client.cluster import Cluster
from braidlog.core.errors import UserError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=os.environ.get("BRAIDLOG_BOOTSTRAP", DEFAULT_BOOTSTRAP),
        help=f"a broker of the cluster (default {DEFAULT_BOOTSTRAP}, or $BRAIDLOG_BOOTSTRAP)",
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=30.0, help="for each answer (default 30)")


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="for people or for scripts")


def connect(options: argparse.Namespace) -> Cluster:
    return Cluster(options.bootstrap, options.timeout)


def pairs(texts: list[str], option: str) -> dict[str, str]:
    """`--config key=value …` as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{option} {text}: give KEY=VALUE")
        found[key.strip()] = value
    return found
