"""`braidlog profiles list|show`, and the file behind `--profile NAME`: settings of a client under a name.

[prod]
bootstrap.servers = "b1.example.com:9093,b2.example.com:9093"
security.protocol = "SASL_SSL"
sasl.mechanism    = "SCRAM-SHA-512"
sasl.username     = "alice"
sasl.password     = { env = "PROD_PASSWORD" }        or { file = "~/.secrets/prod" }
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from braidlog.cli.options import PROFILE_VARIABLE, add_output, profile_name
from braidlog.cli.output import show
from braidlog.core.errors import UserError

_HIDDEN: Final = "(secret)"
# An unknown one may be a misspelt password.
_UNKNOWN: Final = "(not shown, since no client knows this setting)"
_SECRET_WORDS: Final = ("password", "secret", "token", "jaas", "credential", "user.info")
_OF_REGISTRIES: Final = ("schema.registry.url", "schema.registry.ssl.ca.location")
_COLUMNS: Final = ("profile", "bootstrap", "security_protocol", "settings", "chosen")
_EPILOG: Final = f"""\
Profiles are tables of $XDG_CONFIG_HOME/braidlog/profiles.toml (else ~/.config/braidlog/profiles.toml):

  [prod]
  bootstrap.servers = "b1.example.com:9093,b2.example.com:9093"
  security.protocol = "SASL_SSL"
  sasl.mechanism    = "SCRAM-SHA-512"
  sasl.username     = "alice"
  sasl.password     = {{ env = "PROD_PASSWORD" }}        # or {{ file = "~/.secrets/prod" }}

  braidlog topics list --profile prod
  export {PROFILE_VARIABLE}=prod

What wins: --bootstrap and --request-timeout, then -X, then --command-config, then the profile, then
$BRAIDLOG_BOOTSTRAP.
"""


class Reference(NamedTuple):
    """A value that is somewhere else: in a variable of the environment, or in a file."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"${self.name}" if self.kind == "env" else f"file {self.name}"


Settings = Mapping[str, str | Reference]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")
    listing = verbs.add_parser("list", help="the profiles that there are")
    listing.set_defaults(run=run_list)
    one = verbs.add_parser("show", help="the settings of a profile, without its secrets")
    one.add_argument("profile", metavar="PROFILE", type=profile_name)
    one.set_defaults(run=run_show)
    for verb in (listing, one):
        add_output(verb)


def run_list(options: argparse.Namespace) -> int:
    chosen = os.environ.get(PROFILE_VARIABLE)
    rows = [
        {
            "profile": name,
            "bootstrap": _shown("bootstrap.servers", settings.get("bootstrap.servers")),
            "security_protocol": _shown("security.protocol", settings.get("security.protocol", "PLAINTEXT")),
            "settings": len(settings),
            "chosen": name == chosen,
        }
        for name, settings in sorted(read_profiles().items())
    ]
    show(rows, options.output, _COLUMNS)
    return 0


def run_show(options: argparse.Namespace) -> int:
    settings = _profile(options.profile)
    rows = [{"setting": name, "value": _shown(name, settings[name])} for name in sorted(settings)]
    show(rows, options.output, ("setting", "value"))
    return 0


def _shown(name: str, value: str | Reference | None) -> str | None:
    if value is None or isinstance(value, Reference):
        return None if value is None else str(value)
    from braidlog.client.settings import COMMON, CONSUMER, PRODUCER, definitions

    known = [found for kind in (COMMON, PRODUCER, CONSUMER) if (found := definitions(kind).get(name)) is not None]
    has_login = name in _OF_REGISTRIES and "@" in value
    if has_login or any(each.sensitive for each in known) or any(word in name for word in _SECRET_WORDS):
        return _HIDDEN
    return value if known or name in _OF_REGISTRIES else _UNKNOWN


# What commands use


def profile_settings(name: str) -> dict[str, str]:
    """The profile's settings by their dotted names, with what they refer to."""
    return {key: _resolved(name, key, value) for key, value in _profile(name).items()}


def _profile(name: str) -> Settings:
    profiles = read_profiles()
    if name not in profiles:
        there = f"it has {', '.join(sorted(profiles))}" if profiles else "it has none, or is not there"
        raise UserError(f"there is no profile {name} in {profiles_file()}; {there}")
    return profiles[name]


def profiles_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "braidlog" / "profiles.toml"


def read_profiles() -> dict[str, Settings]:
    """By name; none where there is no file."""
    path = profiles_file()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror or problem}") from problem
    except ValueError as problem:
        raise UserError(f"{path} is not TOML: {problem}") from problem
    profiles: dict[str, Settings] = {}
    for name, table in content.items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {name} stands outside of a profile; write a line such as [prod] before it")
        profiles[name] = dict(_flattened(table, (), f"{path}: profile {name}"))
    return profiles


def _flattened(table: Mapping[str, Any], above: tuple[str, ...], where: str) -> Iterator[tuple[str, str | Reference]]:
    """`sasl.password = …` is a table in a table to TOML, and a dotted name to Kafka."""
    for key, value in table.items():
        name = ".".join((*above, key))
        if isinstance(value, dict):
            reference = _reference(value)
            if reference is None:
                yield from _flattened(value, (*above, key), where)
            else:
                yield name, reference
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, list) and all(isinstance(each, str | int) for each in value):
            yield name, ",".join(map(str, value))
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise UserError(f"{where}: {name} is neither text, a number, true or false, nor a list")


def _reference(value: Mapping[str, Any]) -> Reference | None:
    """No setting's name ends in .env or .file."""
    if len(value) != 1:
        return None
    ((kind, name),) = value.items()
    return Reference(kind, name) if kind in ("env", "file") and isinstance(name, str) else None


def _resolved(profile: str, key: str, value: str | Reference) -> str:
    if isinstance(value, str):
        return value
    if value.kind == "env":
        found = os.environ.get(value.name)
        if found is None:
            raise UserError(f"profile {profile} takes {key} from ${value.name}, which is not set")
        return found
    path = profiles_file().parent / os.path.expanduser(value.name)
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise UserError(f"profile {profile} takes {key} from {path}: {reason}") from problem
