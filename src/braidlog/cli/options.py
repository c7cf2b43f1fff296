"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.command_tree import CLIENT_SETTING, Placeholder
from braidlog.cli.output import remark
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.admin.cluster_connection import ClusterConnection

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
PROFILE_VARIABLE: Final = "BRAIDLOG_PROFILE"
_REQUEST_TIMEOUT_S: Final = 30.0
# Stand in the same files as the clients' settings, for `consume --schema-registry`.
_OF_REGISTRIES: Final = ("schema.registry.", "basic.auth.", "bearer.auth.")

# What the fields of the protocol have room for.
INT16_MAX: Final = 2**15 - 1
UINT16_MAX: Final = 2**16 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)(?:/s)?\s*", re.ASCII)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def add_connection(parser: argparse.ArgumentParser, *, config_is_taken: bool = False) -> None:
    """How to reach a cluster; `config_is_taken` where --config means something else."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        help=f"a broker of the cluster (default: of the settings, $BRAIDLOG_BOOTSTRAP, or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--request-timeout",
        metavar="SECONDS",
        type=timeout_seconds,
        help="how long to wait for each answer (default 30)",
    )
    add_client_config(parser, config_is_taken=config_is_taken)


def add_client_config(parser: argparse.ArgumentParser, *, config_is_taken: bool) -> None:
    parser.add_argument(
        "--profile",
        metavar="PROFILE",
        type=profile_name,
        help=f"settings under a name, see `braidlog profiles --help` (default: of ${PROFILE_VARIABLE})",
    )
    parser.add_argument(
        "--command-config",
        *(() if config_is_taken else ("--config",)),
        dest="command_config",
        metavar="FILE",
        type=path_name,
        help="settings of a Kafka client (security.protocol, sasl.*, ssl.*, …) in its properties syntax",
    )
    parser.add_argument(
        "-X",
        dest="client_settings",
        metavar=Placeholder("KEY=VALUE", CLIENT_SETTING),
        action="append",
        default=[],
        help="one such setting; wins over the file",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="for people or for scripts")


def connect(options: argparse.Namespace) -> ClusterConnection:
    # Commands that need no broker do not pay for the client.
    from braidlog.client.admin.cluster_connection import ClusterConnection

    settings = client_properties(options)
    resolve_connection(options, settings)
    return ClusterConnection(options.bootstrap, options.request_timeout, settings)


def client_properties(options: argparse.Namespace) -> dict[str, Any]:
    """What the profile, --command-config and -X say, the later over the earlier.

    An unknown name is refused on the line; in a file, which may serve other programs as well, it earns a remark.
    """
    profile = options.profile or os.environ.get(PROFILE_VARIABLE)
    if not profile and not options.command_config and not options.client_settings:
        return {}
    from braidlog.client.settings import COMMON, CONSUMER, PRODUCER, definitions

    settings = client_texts(options)
    known = {name for kind in (COMMON, PRODUCER, CONSUMER) for name in definitions(kind)}
    on_line = pairs(options.client_settings, "-X")
    for name in sorted(settings.keys() - known):
        if not name.startswith(_OF_REGISTRIES):
            _tell_of_unknown(name, known, is_on_line=name in on_line)
    return {name: value for name, value in settings.items() if name in known}


def client_texts(options: argparse.Namespace) -> dict[str, str]:
    """All settings of the profile, --command-config and -X, the last of all first, for clients and for others."""
    settings: dict[str, str] = {}
    profile = options.profile or os.environ.get(PROFILE_VARIABLE)
    if profile:
        from braidlog.cli.commands.profiles import profile_settings

        settings.update(profile_settings(profile))
    if options.command_config:
        from braidlog.config.sources import from_file

        settings.update(from_file(options.command_config).texts)
    settings.update(pairs(options.client_settings, "-X"))
    return settings


def _tell_of_unknown(name: str, known: Collection[str], *, is_on_line: bool) -> None:
    from difflib import get_close_matches

    from braidlog.client.errors import SettingError
    from braidlog.client.settings import without_effect

    theirs = without_effect()
    if name in theirs:
        remark(f"the setting {name} has no effect: {theirs[name].no_effect}")
        return
    close = get_close_matches(name, known, n=1, cutoff=0.8)
    meant = f"; did you mean {close[0]}?" if close else ""
    if is_on_line:
        raise SettingError(f"-X {name}: no client knows this setting{meant}")
    remark(f"no client knows the setting {name}{meant}")


def resolve_connection(
    options: argparse.Namespace, settings: Mapping[str, Any], timeout_s: float = _REQUEST_TIMEOUT_S
) -> None:
    """Where an option was not given: the file's or the profile's value, the environment's, the default."""
    if options.bootstrap is None:
        options.bootstrap = (
            settings.get("bootstrap.servers") or os.environ.get("BRAIDLOG_BOOTSTRAP") or DEFAULT_BOOTSTRAP
        )
    if options.request_timeout is None:
        options.request_timeout = _request_timeout_s(settings) or timeout_s


def _request_timeout_s(settings: Mapping[str, Any]) -> float:
    """What the file and -X say; 0 where they say nothing."""
    if "request.timeout.ms" not in settings:
        return 0.0
    from braidlog.client.settings import ADMIN, Settings

    return Settings.of(ADMIN, {"request.timeout.ms": settings["request.timeout.ms"]}).seconds("request.timeout.ms")


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
    return _seconds(text, 1e9)


def timeout_seconds(text: str) -> float:
    """Milliseconds of it fit the protocol's int32."""
    return _seconds(text, INT32_MAX / 1000)


def _seconds(text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    # "Not a number" compares as neither.
    if not 0.001 <= value < most:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a positive number of seconds below {most:.0f}")
    return value


def path_name(text: str) -> str:
    """The name of a file or directory."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty text names no file or directory")
    return text


def profile_name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a profile's name has at least one character")
    return text


def positive(text: str) -> int:
    """A count that no wire field limits; the protocol's largest integer does."""
    return whole_number(text, 1, INT64_MAX, "a positive whole number")


def partition_count(text: str) -> int:
    return whole_number(text, 1, INT32_MAX, "a number of partitions: a positive whole number")


def replication_factor(text: str) -> int:
    return whole_number(text, 1, INT16_MAX, "a replication factor: a positive whole number")


def broker_number(text: str) -> int:
    return whole_number(text, 0, INT32_MAX, "a broker's id: a whole number from 0")


def partition_number(text: str) -> int:
    return whole_number(text, 0, INT32_MAX, "a partition: a whole number from 0")


def offset_number(text: str) -> int:
    return whole_number(text, 0, INT64_MAX, "an offset: a whole number from 0")


def producer_number(text: str) -> int:
    return whole_number(text, 0, INT64_MAX, "a producer id: a whole number from 0")


def byte_rate(text: str) -> float:
    """`1MB`, `512KiB`, `1000000`; decimal units, or binary ones with an i."""
    match = _RATE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    # A number of very many digits is infinite as a float.
    if match is None or unit is None or math.isinf(float(match[1]) * unit):
        raise argparse.ArgumentTypeError(
            f"{shortened(text)} is no rate: give bytes a second, such as 500000, 500kB, 1MB or 1MiB"
        )
    return float(round(float(match[1]) * unit))


def port_number(text: str) -> int:
    return whole_number(text, 0, UINT16_MAX, "a port: a whole number from 0")


def listen_address(text: str) -> str:
    """HOST:PORT, of which the host may be left out."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{shortened(text)}: give HOST:PORT, such as 127.0.0.1:9092")
    return f"{host or '127.0.0.1'}:{port_number(port)}"


def whole_number(text: str, least: int, most: int, what: str) -> int:
    plain = text.strip()
    # The length is looked at first: Python refuses to read numbers of thousands of digits.
    if not (plain.isascii() and plain.isdecimal()) or len(plain) > 19 or not least <= int(plain) <= most:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not {what} up to {most}")
    return int(plain)


def shortened(text: str) -> str:
    """Quoted for a message, which has to stay one that can be read."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def timestamp_ms(text: str) -> int:
    """Milliseconds since 1970, or ISO 8601; without a zone the local one is meant."""
    if text.isascii() and text.isdecimal():
        return whole_number(text, 0, INT64_MAX, "a time in milliseconds since 1970")
    try:
        moment_ms = round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as problem:
        raise argparse.ArgumentTypeError(
            f"{shortened(text)} is neither milliseconds since 1970 nor ISO 8601 such as 2024-05-01T12:00:00Z"
        ) from problem
    if moment_ms < 0:
        # The protocol uses negative ones as signs for the start and the end of a partition.
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970, where the time of records begins")
    return moment_ms


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
