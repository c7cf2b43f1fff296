"""What a schema file says: APIs, messages, structs and fields, each with the versions that have it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# Smallest size on the wire; where the compact form is smaller, that one.
SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
TEXT_LIKE = {"string": 2, "bytes": 4, "records": 4}
INTEGERS = {"int8", "int16", "uint16", "int32", "int64"}


class Versions(NamedTuple):
    low: int
    high: int

    def covers(self, other: Versions) -> bool:
        return self.low <= other.low and self.high >= other.high

    def meet(self, other: Versions) -> Versions:
        return Versions(max(self.low, other.low), min(self.high, other.high))

    def __bool__(self) -> bool:
        return self.low <= self.high


NEVER = Versions(1, 0)


@dataclass
class Field:
    name: str
    type: str
    """A primitive or a struct's name; of the elements, when `array`."""
    array: bool
    versions: Versions
    nullable: Versions
    tag: int | None = None
    default: str | None = None
    ignorable: bool = False
    inflexible: bool = False
    """Never in the compact form, whatever the version: the client id of request headers."""


@dataclass
class Struct:
    name: str
    versions: Versions
    flexible: Versions
    fields: list[Field] = field(default_factory=list)

    def untagged(self) -> list[Field]:
        return [item for item in self.fields if item.tag is None]

    def tagged(self) -> list[Field]:
        return sorted((item for item in self.fields if item.tag is not None), key=lambda item: item.tag or 0)


@dataclass
class Api:
    key: int
    name: str
    versions: Versions
    stable: int
    flexible_from: int | None


@dataclass
class Schema:
    """One file: an API's request and response, or messages that belong together."""

    module: str
    about: str
    api: Api | None = None
    structs: dict[str, Struct] = field(default_factory=dict)
    """Inner structs before the ones that hold them."""
    messages: list[str] = field(default_factory=list)
    """The structs that are messages by themselves."""

    def smallest(self, name: str) -> int:
        """The least bytes that a struct takes in any of its versions, so that array lengths can be checked."""
        struct = self.structs[name]
        sizes = []
        for version in range(struct.versions.low, struct.versions.high + 1):
            here = Versions(version, version)
            flexible = struct.flexible.covers(here)
            size = 1 if flexible else 0
            for item in struct.untagged():
                if item.versions.covers(here):
                    size += self._smallest_field(item, flexible and not item.inflexible, item.nullable.covers(here))
            sizes.append(size)
        return max(1, min(sizes))

    def _smallest_field(self, item: Field, flexible: bool, nullable: bool) -> int:
        if item.array:
            return 1 if flexible else 4
        if item.type in SIZES:
            return SIZES[item.type]
        if item.type in TEXT_LIKE:
            return 1 if flexible else TEXT_LIKE[item.type]
        return 1 if nullable else self.smallest(item.type)
