"""Who acts: a principal has a type and a name, written `User:alice`."""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.core.errors import UserError

# The type that everybody has who logs in.
USER: Final = "User"


class Principal(NamedTuple):
    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Principal:
        """From the form that ACLs have it in, `User:alice`."""
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise UserError(f"{text!r} is no principal; write TYPE:NAME, such as User:alice")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"
