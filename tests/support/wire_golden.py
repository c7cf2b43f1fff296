"""The golden messages, and the classes that read them."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.protocol.generate import schemas

from braidlog.wire.message import Message

GOLDEN = Path(__file__).parent.parent / "unit" / "wire" / "golden" / "messages.txt.xz"


@cache
def golden() -> dict[str, list[tuple[int, bytes, Any]]]:
    found: dict[str, list[tuple[int, bytes, Any]]] = defaultdict(list)
    for line in lzma.decompress(GOLDEN.read_bytes()).decode("utf-8").splitlines():
        name, version, content, fields = line.split("\t")
        found[name].append((int(version), bytes.fromhex(content), json.loads(fields)))
    return found


@cache
def messages() -> dict[str, tuple[type[Message], range]]:
    """Class and the versions of Kafka 3.9, of everything that the schemas declare."""
    found: dict[str, tuple[type[Message], range]] = {}
    for schema in schemas():
        module = import_module(f"braidlog.wire.generated.{schema.module}")
        for name in schema.messages:
            having = schema.structs[name].versions
            top = schema.api.stable if schema.api else having.high
            found[name] = (getattr(module, name), range(having.low, top + 1))
    return found
