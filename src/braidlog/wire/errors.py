"""What can be wrong with bytes that came in (the peer's fault) and with a message that goes out (our own)."""

from __future__ import annotations

from typing import NoReturn


class MalformedError(ValueError):
    """The bytes are not a message: cut short, a length that cannot be, text that is not UTF-8."""


class EncodeError(ValueError):
    """A message holds what the chosen version cannot carry."""


def refuse(field: str, version: int) -> NoReturn:
    raise EncodeError(
        f"{field} is set, but version {version} cannot carry it; leave it at its default or use another version"
    )


def refuse_null(field: str, version: int) -> NoReturn:
    raise EncodeError(f"{field} is None, which version {version} cannot carry")


def required_text(value: str | None, field: str, version: int) -> str:
    if value is None:
        refuse_null(field, version)
    return value


class TooManyElementsError(MalformedError):
    """The arrays of a message have more elements than its decoder allowed."""
