"""Every message in every version of Kafka 3.9, as kafka-clients wrote it (made by `python -m tools.golden`)."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tools.protocol.generate import schemas

from braidlog.core.slices import ByteSlice
from braidlog.wire.apis import APIS
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer

GOLDEN = Path(__file__).parent / "golden" / "messages.txt.xz"


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


def differences(where: str, message: Message, expected: dict[str, Any]) -> Iterator[str]:
    for name, value in expected.items():
        yield from compared(f"{where}.{name}", getattr(message, name), value)


def compared(where: str, ours: object, theirs: Any) -> Iterator[str]:
    if isinstance(ours, Message) and isinstance(theirs, dict):
        yield from differences(where, ours, theirs)
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{where}: {len(ours)} elements, not {len(theirs)}"
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from compared(f"{where}[{index}]", one, other)
    else:
        plain = ours.tobytes().hex() if isinstance(ours, ByteSlice) else ours
        plain = plain.hex() if isinstance(plain, bytes) else plain
        if plain != theirs:
            yield f"{where}: {plain!r}, not {theirs!r}"


@pytest.mark.parametrize("name", sorted(messages()))
def test_decodes_and_encodes_what_kafka_wrote(name: str) -> None:
    message_class, versions = messages()[name]
    assert {version for version, _, _ in golden()[name]} == set(versions)
    for version, content, fields in golden()[name]:
        reader = Reader(content)
        message = message_class.decode(reader, version)
        reader.finish()
        assert list(differences(f"v{version} {name}", message, fields)) == []
        writer = Writer()
        message.encode(writer, version)
        assert writer.getvalue().hex() == content.hex(), f"version {version}"


@pytest.mark.parametrize("name", sorted(messages()))
def test_defaults_are_kafkas(name: str) -> None:
    message_class, versions = messages()[name]
    for version in versions:
        written = next(content for at, content, _ in golden()[name] if at == version)
        writer = Writer()
        message_class().encode(writer, version)
        assert writer.getvalue().hex() == written.hex(), f"version {version}"


def test_every_api_of_the_specification_is_there() -> None:
    wanted = {*range(52), 56, 57, 60, 61, 65, 66, 67, 68, 69, 75}
    assert wanted <= set(APIS)
    assert set(golden()) == set(messages())
