"""What the pipeline asks of a schema registry, asked of our stand-in and of Apicurio Registry alike."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tools.peers.apicurio import start_apicurio
from tools.peers.maven import PeerMissing

from braidlog.client.schema_registry.registry import UnknownSchema
from pyspark_braidlog.pipeline import Registry
from support.schema_registry import running_registry

USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}],
}
NEWER = {**USER, "fields": [*USER["fields"], {"name": "name", "type": "string", "default": ""}]}


@pytest.fixture(scope="module", params=["stand-in", pytest.param("apicurio", marks=pytest.mark.peer)])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    if request.param == "stand-in":
        with running_registry() as running:
            yield Registry(running.url)
        return
    try:
        with start_apicurio() as url:
            yield Registry(url)
    except PeerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def subject() -> str:
    return f"users {uuid.uuid4().hex[:6]}-value"


def test_versions_of_a_subject(registry: Registry, subject: str) -> None:
    first = registry.register(subject, USER)
    assert registry.register(subject, USER) == first
    assert registry.latest(subject) == (first, "AVRO", USER)
    second = registry.register(subject, NEWER)
    assert second != first
    assert registry.latest(subject) == (second, "AVRO", NEWER)
    assert registry.id_of(subject, USER) == first
    assert registry.fetch(first) == (first, "AVRO", USER)
    assert registry.fetch(second) == (second, "AVRO", NEWER)


def test_what_is_not_there(registry: Registry, subject: str) -> None:
    with pytest.raises(UnknownSchema):
        registry.latest(subject)
    with pytest.raises(UnknownSchema, match="schema id 987654 is not in the registry"):
        registry.schema_by_id(987654)
    registry.register(subject, USER)
    with pytest.raises(UnknownSchema):
        registry.id_of(subject, NEWER)


def test_json_schemas(registry: Registry, subject: str) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "title": subject}
    number = registry.register(subject, schema, "JSON")
    assert registry.latest(subject) == (number, "JSON", schema)
    assert registry.fetch(number) == (number, "JSON", schema)
    assert registry.id_of(subject, schema, "JSON") == number
