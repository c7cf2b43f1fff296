"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.output import remark
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.cluster import Cluster

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
_REQUEST_TIMEOUT_S: Final = 30.0
# Stand in the same files as the clients' settings, for `consume --schema-registry`.
_OF_REGISTRIES: Final = ("schema.registry.", "basic.auth.", "bearer.auth.")

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def add_connection(parser: argparse.ArgumentParser, *, config_is_taken: bool = False) -> None:
    """How to reach a cluster; `config_is_taken` where --config means something else."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"a broker of the cluster (default: of --command-config, $BRAIDLOG_BOOTSTRAP, or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--request-timeout", metavar="SECONDS", type=seconds, help="how long to wait for each answer (default 30)"
    )
    add_client_config(parser, config_is_taken=config_is_taken)


def add_client_config(parser: argparse.ArgumentParser, *, config_is_taken: bool) -> None:
    parser.add_argument(
        "--command-config",
        *(() if config_is_taken else ("--config",)),
        dest="command_config",
        metavar="FILE",
        help="settings of a Kafka client (security.protocol, sasl.*, ssl.*, …) in its properties syntax",
    )
    parser.add_argument(
        "-X",
        dest="client_settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one such setting; wins over the file",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="for people or for scripts")


def connect(options: argparse.Namespace) -> Cluster:
    # Commands that need no broker do not pay for the client.
    from braidlog.client.cluster import Cluster

    settings = client_properties(options)
    resolve_connection(options, settings)
    return Cluster(options.bootstrap, options.request_timeout, settings)


def client_properties(options: argparse.Namespace) -> dict[str, Any]:
    """What --command-config and -X say to clients; a name that nobody knows earns a remark."""
    if not options.command_config and not options.client_settings:
        return {}
    from braidlog.client.settings import COMMON, CONSUMER, PRODUCER, definitions

    settings = client_texts(options)
    known = {name for kind in (COMMON, PRODUCER, CONSUMER) for name in definitions(kind)}
    unknown = sorted(name for name in settings if name not in known and not name.startswith(_OF_REGISTRIES))
    if unknown:
        remark(f"no client knows the setting{'s'[: len(unknown) > 1]} {', '.join(unknown)}")
    return {name: value for name, value in settings.items() if name in known}


def client_texts(options: argparse.Namespace) -> dict[str, str]:
    """All settings of --command-config and -X, for clients and for others."""
    if not options.command_config:
        return pairs(options.client_settings, "-X")
    from braidlog.config.sources import from_file

    return {**from_file(options.command_config).texts, **pairs(options.client_settings, "-X")}


def resolve_connection(
    options: argparse.Namespace, settings: Mapping[str, Any], timeout_s: float = _REQUEST_TIMEOUT_S
) -> None:
    """Where an option was not given: the file's value, the environment's, the default."""
    if options.bootstrap is None:
        options.bootstrap = (
            settings.get("bootstrap.servers") or os.environ.get("BRAIDLOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP
        )
    if options.request_timeout is None:
        given = str(settings.get("request.timeout.ms", ""))
        options.request_timeout = int(given) / 1000.0 if given.isdecimal() and int(given) > 0 else timeout_s


def pairs(texts: list[str], option: str) -> dict[str, str]:
    """`--config key=value …` as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{option} {text}: give KEY=VALUE")
        found[key.strip()] = value
    return found


# Types for argparse: a value that is none of theirs is a usage error.


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def timestamp_ms(text: str) -> int:
    """Milliseconds since 1970, or ISO 8601; without a zone the local one is meant."""
    if text.isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as problem:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor ISO 8601 such as 2024-05-01T12:00:00Z"
        ) from problem


def unescaped(text: str) -> str:
    r"""Text with `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN` as shells hand them over."""
    out: list[str] = []
    rest = iter(range(len(text)))
    for at in rest:
        sign = text[at]
        following = text[at + 1 : at + 2]
        if sign != "\\" or not following:
            out.append(sign)
        elif following == "x":
            try:
                out.append(chr(int(text[at + 2 : at + 4], 16)))
            except ValueError as problem:
                raise argparse.ArgumentTypeError(f"{text!r}: \\x needs two hexadecimal digits") from problem
            for _ in range(3):
                next(rest, None)
        elif following in _ESCAPES:
            out.append(_ESCAPES[following])
            next(rest)
        else:
            raise argparse.ArgumentTypeError(f"{text!r}: unknown escape \\{following}")
    return "".join(out)


def separator(text: str) -> str:
    """Unescaped text of at least one character."""
    plain = unescaped(text)
    if not plain:
        raise argparse.ArgumentTypeError("a separator needs at least one character")
    return plain
