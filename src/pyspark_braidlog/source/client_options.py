"""The `kafka.*` options: settings of the client that reads, without those that Spark decides itself."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from braidlog.client.settings import ADMIN, CONSUMER, PRODUCER, Settings, definitions, without_effect
from braidlog.core.errors import UserError
from pyspark_braidlog.source.option_names import PREFIX

_DECODE: Final = "come as bytes; decode them with functions of the DataFrame"
_REFUSED: Final = {
    "auto.offset.reset": "where to begin is said by startingOffsets, and later by the checkpoint",
    "key.deserializer": f"keys {_DECODE}",
    "value.deserializer": f"values {_DECODE}",
    "enable.auto.commit": "Spark keeps the offsets; with the option groupId they are committed after each batch",
    "interceptor.classes": "interceptors could change records, so that a batch could not be read again as it was",
}
_ALIKE: Final = 0.92


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings by name, without the prefix; `options` have lower-case names."""
    found = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    for name, reason in _REFUSED.items():
        if name in found:
            raise UserError(f"option kafka.{name} is not supported: {reason}")
    _check_spelling(found)
    if not found.get("bootstrap.servers", "").strip():
        raise UserError("option kafka.bootstrap.servers is missing; give brokers to ask first as HOST:PORT")
    # Raises for a value that a setting cannot have.
    Settings.of(CONSUMER, found)
    return found


def _check_spelling(names: Mapping[str, str]) -> None:
    """Clients pass over settings that they do not know; a misspelt one of security should not be."""
    known = {**definitions(CONSUMER), **without_effect()}
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    known = {**known, **definitions(PRODUCER), **definitions(ADMIN)}
    for name in unknown:
        close = get_close_matches(name, known, n=1, cutoff=_ALIKE)
        if close and close[0] != name:
            raise UserError(f"there is no option kafka.{name}; did you mean kafka.{close[0]}?")
