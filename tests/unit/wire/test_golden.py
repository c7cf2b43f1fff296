"""Every message in every version of Kafka 3.9, as kafka-clients wrote it (made by `python -m tools.golden`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from braidlog.core.slices import ByteSlice
from braidlog.wire.apis import APIS
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer
from support.wire_golden import golden, messages


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
