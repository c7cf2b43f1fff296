"""confluent-kafka's own serializers and deserializers beside ours, where the packages that they need are installed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tools.peers.apicurio import start_apicurio
from tools.peers.maven import PeerMissing

from braidlog.client.schema_registry.decoding import RecordDecoder
from braidlog.client.schema_registry.registry import ProtobufSchema, Registry
from support.registry_records import ORDER_PROTO, USER_PROTO, captured, written
from support.schema_registry import running_registry

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", params=["stand-in", "apicurio"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "stand-in":
        with running_registry() as running:
            yield running.url
        return
    try:
        with start_apicurio() as url:
            yield url
    except PeerMissing as missing:
        pytest.skip(str(missing))


def test_what_they_write_is_read(url: str) -> None:
    try:
        records = written(url, captured().descriptor_set)
    except ImportError as missing:
        pytest.skip(f"confluent-kafka's serializers need more than is installed: {missing}")
    decoder = RecordDecoder(Registry(url))
    for record in records:
        assert decoder.decode(record.data) == record.means, record.name
    # But for the ids, which are the registry's, nothing changed since the capture was made.
    assert [each.data[5:] for each in records] == [each.data[5:] for each in captured().records]


def test_protobuf_schemas_with_references(url: str) -> None:
    """The capture's bytes, with its schemas as text."""
    registry = Registry(url)
    user, order = (f"{name}-{uuid.uuid4().hex[:6]}" for name in ("user", "order"))
    registry.register(user, USER_PROTO, "PROTOBUF")
    body = {
        "schema": ORDER_PROTO,
        "schemaType": "PROTOBUF",
        "references": [{"name": "user.proto", "subject": user, "version": 1}],
    }
    number = int(registry._ask("POST", f"/subjects/{order}/versions", body)["id"])
    assert registry.latest(order) == (number, "PROTOBUF", ProtobufSchema(ORDER_PROTO, {"user.proto": USER_PROTO}))
    decoder = RecordDecoder(registry)
    for record in captured().records[2:]:
        data = b"\x00" + number.to_bytes(4, "big") + record.data[5:]
        assert decoder.decode(data) == record.means, record.name
