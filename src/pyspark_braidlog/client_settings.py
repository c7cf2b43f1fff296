"""The `kafka.*` options of a source or a sink: settings of the client behind it, without those that Spark decides."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, definitions, without_effect
from braidlog.core.errors import UserError

PREFIX: Final = "kafka."
# How alike a name must be to one that exists to be a misspelling of it.
_ALIKE: Final = 0.92


def client_settings(options: Mapping[str, str], kind: str, unsupported: Mapping[str, str]) -> dict[str, str]:
    """The settings of a client of this kind, without the prefix; `options` have lower-case names.

    `unsupported` has a reason for each setting that cannot be given here.
    """
    found = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    for name, reason in unsupported.items():
        if name in found:
            raise UserError(f"option kafka.{name} is not supported: {reason}")
    _check_spelling(found, kind)
    if not found.get("bootstrap.servers", "").strip():
        raise UserError("option kafka.bootstrap.servers is missing; give brokers to ask first as HOST:PORT")
    return found


def _check_spelling(names: Mapping[str, str], kind: str) -> None:
    """Clients ignore settings that they do not know; a misspelt one of security must not be ignored."""
    known = {**definitions(kind), **without_effect()}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    known = {**known, **definitions(CONSUMER), **definitions(PRODUCER), **definitions(ADMIN)}
    for name in unknown:
        close = get_close_matches(name, known, n=1, cutoff=_ALIKE)
        if close and close[0] != name:
            raise UserError(f"there is no option kafka.{name}; did you mean kafka.{close[0]}?")


def admin_settings(client: Mapping[str, str]) -> dict[str, str]:
    """The settings of a producer or consumer that an admin client has, too."""
    known = definitions(ADMIN)
    return {name: value for name, value in client.items() if name in known}
