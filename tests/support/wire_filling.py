"""Messages filled from a seed, by what the schemas say; values that every codec can hold."""

from __future__ import annotations

from importlib import import_module
from random import Random
from typing import Any

from tools.protocol.model import Field, Schema, Versions

from braidlog.wire.message import Message

RANGES = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
TEXTS = ("", "a", "topic-1", "日本語", "x" * 130)


def filled(schema: Schema, name: str, version: int, random: Random) -> Message:
    """The struct `name` with values in the fields that `version` has, and defaults in the others."""
    values: dict[str, Any] = {}
    here = Versions(version, version)
    for item in schema.structs[name].fields:
        if not item.versions.covers(here) or random.random() < 0.1:
            continue
        if item.nullable.covers(here) and random.random() < 0.2:
            values[item.name] = None
        elif item.array:
            values[item.name] = [_single(schema, item, version, random) for _ in range(random.randrange(3))]
        else:
            value = _single(schema, item, version, random)
            # A tagged struct at its defaults is not written by other codecs; ours would write it when asked to.
            unset = item.tag is not None and isinstance(value, Message) and value == type(value)()
            values[item.name] = None if unset else value
    message_class = getattr(import_module(f"braidlog.wire.generated.{schema.module}"), name)
    message: Message = message_class(**values)
    return message


def _single(schema: Schema, item: Field, version: int, random: Random) -> Any:
    if item.name.endswith("error_code"):
        return random.randrange(0, 100)
    if item.name.endswith(("_ms", "timestamp", "timeout")):
        return random.randrange(0, 2**31) * 1000 if item.type == "int64" else random.randrange(0, 2**31)
    if item.type in RANGES:
        low, high = RANGES[item.type]
        return random.choice((low, high, 0, 1, random.randint(low, high)))
    if item.type == "bool":
        return random.random() < 0.5
    if item.type == "float64":
        return random.random() * 1000
    if item.type == "string":
        return random.choice(TEXTS)
    if item.type in ("bytes", "records"):
        return random.randbytes(random.choice((0, 3, 150)))
    if item.type == "uuid":
        return random.choice((bytes(16), random.randbytes(16)))
    return filled(schema, item.type, version, random)
