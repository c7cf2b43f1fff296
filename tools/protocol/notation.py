"""Reads the schema files.

    # One sentence about the API.
    api 1 Fetch versions 0-18 stable 17 flexible 12+

    struct Shared 3+                            a struct that several fields name
      partition   int32

    request                                     or `response`, or `message Name versions 0-1 flexible none`
      name        string?          3+ = null    nullable in all its versions, null by default
      topic       string?7+                     nullable since version 7
      topics      []FetchTopic                  an array; its struct's fields stand below, indented
        partition int32            0-12         only in these versions of those that its struct has
      node_ids    []int32          9+ tag 0     a tagged field
      error_code  int16            1+ ignorable dropped silently in versions that lack it
      client_id   string?          inflexible   never in the compact form

Versions are `3`, `3-5` or `3+`; a field without them is in every version of its struct. `stable` is the highest
version of Kafka 3.9, `versions` includes what 4.x added. Without `=` a field's default is zero, false, empty or,
for records, null.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.protocol.model import NEVER, SIZES, TEXT_LIKE, Api, Field, Schema, Struct, Versions

FIELD = re.compile(
    r"(?P<name>[a-z][a-z0-9_]*)\s+(?P<array>\[\])?(?P<type>\w+)(?P<null>\?[0-9+-]*)?"
    r"(?:\s+(?P<versions>\d[\d+-]*))?(?:\s+tag (?P<tag>\d+))?(?:\s+= (?P<default>\S+))?"
    r"(?P<ignorable>\s+ignorable)?(?P<inflexible>\s+inflexible)?"
)
API = re.compile(r"api (\d+) (\w+) versions (\S+) stable (\d+) flexible (\S+)")
MESSAGE = re.compile(r"message (\w+) versions (\S+) flexible (\S+)")
STRUCT = re.compile(r"struct (\w+)(?: (\S+))?")


class NotationError(ValueError):
    """A line that the notation does not know; the message names file and line."""


def versions(text: str, high: int) -> Versions:
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), high)
    low, _, top = text.partition("-")
    return Versions(int(low), int(top or low))


class _Parser:
    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines()
        self.schema = Schema(path.stem, lines[0].removeprefix("# "))
        self.range = NEVER
        self.flexible = NEVER
        # The structs whose fields may stand on the next line, by their fields' depth.
        self.open: dict[int, Struct] = {}
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                try:
                    self.line(line)
                except (KeyError, ValueError) as problem:
                    raise NotationError(f"{path.name}:{number}: {problem}: {line.strip()}") from problem
        self.close(0)

    def line(self, line: str) -> None:
        text = line.strip()
        depth = (len(line) - len(line.lstrip())) // 2
        self.close(depth + 1)
        if match := API.fullmatch(text):
            self.range = versions(match[3], int(match[4]))
            self.flexible = versions(match[5], self.range.high)
            flexible_from = self.flexible.low if self.flexible else None
            self.schema.api = Api(int(match[1]), match[2], self.range, int(match[4]), flexible_from)
        elif match := MESSAGE.fullmatch(text):
            self.range = versions(match[2], 0)
            self.flexible = versions(match[3], self.range.high)
            self.begin(match[1], self.range, 1)
            self.schema.messages.append(match[1])
        elif text in ("request", "response") and self.schema.api is not None:
            name = self.schema.api.name + text.capitalize()
            self.begin(name, self.range, 1)
            self.schema.messages.append(name)
        elif match := STRUCT.fullmatch(text):
            self.begin(match[1], versions(match[2], self.range.high) if match[2] else self.range, depth + 1)
        else:
            self.field(text, depth)

    def begin(self, name: str, having: Versions, depth: int) -> None:
        if name in self.schema.structs or any(struct.name == name for struct in self.open.values()):
            raise ValueError(f"{name} is there twice")
        self.open[depth] = Struct(name, having, self.flexible.meet(having))

    def close(self, depth: int) -> None:
        """Structs whose fields stand at this depth or deeper have all their fields."""
        for open_depth in sorted((key for key in self.open if key >= depth), reverse=True):
            struct = self.open.pop(open_depth)
            self.schema.structs[struct.name] = struct

    def field(self, text: str, depth: int) -> None:
        match = FIELD.fullmatch(text)
        if match is None:
            raise ValueError("not a field")
        owner = self.open.get(depth)
        if owner is None:
            raise ValueError("a field of nothing: wrong depth, or the struct above is already declared elsewhere")
        having = owner.versions
        if match["versions"]:
            having = versions(match["versions"], owner.versions.high).meet(owner.versions)
        nullable = NEVER
        if match["null"]:
            nullable = versions(match["null"][1:], having.high).meet(having) if match["null"] != "?" else having
        if not having:
            raise ValueError("in no version")
        item = Field(
            match["name"],
            match["type"],
            match["array"] is not None,
            having,
            nullable,
            int(match["tag"]) if match["tag"] else None,
            match["default"],
            match["ignorable"] is not None,
            match["inflexible"] is not None,
        )
        owner.fields.append(item)
        known = item.type in SIZES or item.type in TEXT_LIKE or item.type in self.schema.structs
        if not known:
            self.begin(item.type, having, depth + 1)


def read_schema(path: Path) -> Schema:
    schema = _Parser(path).schema
    for struct in schema.structs.values():
        if not struct.fields and struct.name not in schema.messages:
            raise NotationError(f"{path.name}: {struct.name} is neither declared above nor has fields below")
    return schema
