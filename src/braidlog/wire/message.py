"""What every generated message shares: printing, comparing, and the shape of encode and decode."""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final

from mypy_extensions import mypyc_attr

from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer

# The default of array parameters whose protocol default is an empty array although null means something else.
EMPTY: Final[list[Any]] = []
# The id that means "none"; the one of core.ids would pull in what the broker's first answer need not wait for.
ZERO_ID: Final = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"


def field_names(message_class: type) -> list[str]:
    """The fields of a generated class, found the same way whether it is compiled or not."""
    names = vars(message_class)
    return [
        name
        for name in names
        if isinstance(names[name], (GetSetDescriptorType, MemberDescriptorType)) and not name.startswith("__")
    ]


# Rare messages stay interpreted also where this module is compiled (tools/hot.py).
@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Message:
    """A request, a response, a record layout or a struct within one."""

    __slots__ = ()

    def encode(self, w: Writer, version: int) -> None:
        raise NotImplementedError

    @staticmethod
    def decode(r: Reader, version: int) -> Message:
        raise NotImplementedError

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in field_names(type(self))])
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return False
        return not [name for name in field_names(type(self)) if getattr(self, name) != getattr(other, name)]

    def __hash__(self) -> int:
        return id(self)
