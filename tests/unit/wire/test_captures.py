"""Requests as real clients sent them (recorded by `python -m tools.golden.capture`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.slices import ByteSlice
from braidlog.wire.apis import APIS, decode_request, encode_request
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.fetch import FetchRequest
from braidlog.wire.generated.produce import ProduceRequest
from braidlog.wire.headers import read_request_header
from braidlog.wire.reader import Reader

CAPTURES = Path(__file__).parent / "golden" / "captures.txt"
LINES = [line.split("\t") for line in CAPTURES.read_text(encoding="utf-8").splitlines()]


def named(client: str, frame: bytes) -> str:
    header = read_request_header(Reader(frame))
    return f"{client}-{APIS[header.request_api_key].name}-v{header.request_api_version}"


CASES = [pytest.param(bytes.fromhex(frame), id=named(client, bytes.fromhex(frame))) for client, frame in LINES]


@pytest.mark.parametrize("frame", CASES)
def test_a_captured_request(frame: bytes) -> None:
    reader = Reader(frame)
    header = read_request_header(reader)
    key, version = header.request_api_key, header.request_api_version
    message = decode_request(key, version, reader)
    reader.finish()
    again = encode_request(key, version, header.correlation_id, header.client_id, message)
    assert again.getvalue()[4:].hex() == frame.hex()
    if isinstance(message, ProduceRequest):
        [topic] = message.topic_data
        [partition] = topic.partition_data
        assert topic.name == "captured"
        assert isinstance(partition.records, ByteSlice)
        assert partition.records.buffer is frame
        assert b"value" in partition.records.tobytes()
    if isinstance(message, FetchRequest):
        assert message.replica_id == -1
        assert message.replica_state is None
        assert [partition.fetch_offset for topic in message.topics for partition in topic.partitions] in ([], [0])
    if isinstance(message, ApiVersionsRequest) and version >= 3:
        assert message.client_software_name


def test_three_clients_and_what_they_need() -> None:
    assert {client for client, _ in LINES} == {"confluent-kafka", "kafka-python", "aiokafka"}
    keys = {read_request_header(Reader(bytes.fromhex(frame))).request_api_key for _, frame in LINES}
    assert keys >= {0, 1, 2, 3, 18}
