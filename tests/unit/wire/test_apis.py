"""The table of APIs, header versions and their exceptions, frames, and what a version cannot carry."""

from __future__ import annotations

import subprocess
import sys

import pytest

from braidlog.wire.apis import (
    APIS,
    api_by_name,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from braidlog.wire.generated.headers import ResponseHeader
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from braidlog.wire.headers import read_request_header
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


def test_versions_of_kafka_3_9_and_of_4_x() -> None:
    assert (APIS[0].min_version, APIS[0].max_version, APIS[0].stable_max, APIS[0].flexible_from) == (0, 13, 11, 9)
    assert (APIS[1].max_version, APIS[1].stable_max) == (18, 17)
    assert APIS[17].flexible_from == -1
    assert not APIS[17].is_flexible(1)
    assert api_by_name("Fetch") is APIS[1]
    for api in APIS.values():
        assert 0 == api.min_version <= api.stable_max <= api.max_version


def test_header_versions() -> None:
    assert [request_header_version(0, version) for version in (8, 9)] == [1, 2]
    assert [response_header_version(0, version) for version in (8, 9)] == [0, 1]
    assert [request_header_version(7, version) for version in range(4)] == [0, 1, 1, 2]
    assert [request_header_version(18, version) for version in (2, 3)] == [1, 2]
    assert {response_header_version(18, version) for version in range(5)} == {0}
    assert request_header_version(17, 1) == 1


def test_a_request_comes_back() -> None:
    sent = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    for version in range(APIS[3].max_version + 1):
        frame = encode_request(3, version, 9, "me", sent).getvalue()
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        reader = Reader(frame, 4)
        header = read_request_header(reader)
        assert (header.request_api_key, header.request_api_version) == (3, version)
        assert (header.correlation_id, header.client_id) == (9, "me")
        assert decode_request(3, version, reader) == sent


def test_a_response_comes_back() -> None:
    sent = ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, max_version=17)])
    for version in range(5):
        frame = encode_response(18, version, -5, sent).getvalue()
        assert decode_response(18, version, frame[4:]) == (-5, sent)
    assert encode_response(18, 3, 1, sent).getvalue()[8:10] == b"\0\0", "error code right after the correlation id"


@pytest.mark.parametrize(("version", "encoded"), [(99, b"\x00\x63"), (-1, b"\xff\xff")])
def test_the_beginning_of_a_header_in_an_unknown_version_can_be_read(version: int, encoded: bytes) -> None:
    reader = Reader(b"\x00\x12" + encoded + b"\x00\x00\x00\x07whatever comes in that version")
    header = read_request_header(reader)
    assert (header.request_api_version, header.correlation_id) == (version, 7)
    assert reader.position == 8


@pytest.mark.parametrize("frame", [b"", b"\x00\x12\x00", b"\x03\xe7\x00\x00\x00\x00\x00\x01\x00\x00"])
def test_headers_that_are_none(frame: bytes) -> None:
    with pytest.raises(MalformedError):
        read_request_header(Reader(frame))


def test_a_response_begins_with_its_header_in_every_version_of_every_api() -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            expected = Writer()
            ResponseHeader(correlation_id=4711).encode(expected, response_header_version(api.key, version))
            expected_header = expected.getvalue()
            body = Writer()
            response = api.response()
            response.encode(body, version)
            frame = encode_response(api.key, version, 4711, response).getvalue()
            assert frame[4:] == expected_header + body.getvalue(), f"{api.name} v{version}"


def test_keys_are_named_as_their_apis() -> None:
    assert {key.name.replace("_", "").lower(): int(key) for key in ApiKey} == {
        api.name.lower(): api.key for api in APIS.values()
    }


def test_unknown_versions_are_refused() -> None:
    with pytest.raises(EncodeError, match="version 5 of API ApiVersions"):
        encode_request(18, 5, 1, None, ApiVersionsRequest())
    with pytest.raises(EncodeError, match="API 999"):
        encode_response(999, 0, 1, ApiVersionsResponse())
    with pytest.raises(MalformedError, match="no version 99"):
        decode_request(18, 99, Reader(b""))


def test_what_a_version_cannot_carry() -> None:
    with pytest.raises(EncodeError, match=r"FetchPartition\.last_fetched_epoch .* version 11"):
        FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]).encode(Writer(), 11)
    with pytest.raises(EncodeError, match=r"FetchRequest\.replica_state"):
        FetchRequest(replica_state=ReplicaState(replica_id=1)).encode(Writer(), 14)
    with pytest.raises(EncodeError, match=r"FetchRequest\.replica_id"):
        FetchRequest(replica_id=1).encode(Writer(), 15)
    with pytest.raises(EncodeError, match=r"MetadataRequest\.topics is None"):
        MetadataRequest(topics=None).encode(Writer(), 0)
    with pytest.raises(EncodeError, match=r"MetadataRequestTopic\.name is None"):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(Writer(), 9)
    # Ignorable fields are left out silently.
    MetadataResponse(error_code=3, cluster_id="x").encode(Writer(), 0)


def test_null_and_empty_arrays_differ() -> None:
    for topics in ([], None):
        writer = Writer()
        MetadataRequest(topics=topics).encode(writer, 9)
        assert MetadataRequest.decode(Reader(writer.getvalue()), 9).topics == topics
    assert MetadataRequest().topics == []
    assert MetadataRequest().topics is not MetadataRequest().topics


def test_messages_compare_and_print_by_their_fields() -> None:
    assert FetchPartition(partition=1) == FetchPartition(partition=1)
    assert FetchPartition(partition=1) != FetchPartition(partition=2)
    assert FetchPartition() != ReplicaState()
    assert repr(ApiVersion(api_key=2)) in (
        "ApiVersion(api_key=2, min_version=0, max_version=0)",
        "ApiVersion(api_key=2, max_version=0, min_version=0)",
    )


def test_an_unknown_tagged_field_is_skipped() -> None:
    writer = Writer()
    ReplicaState(replica_id=4).encode(writer, 15)
    grown = writer.getvalue()[:-1] + b"\x01\x63\x02hi"
    assert ReplicaState.decode(Reader(grown), 15) == ReplicaState(replica_id=4)


def test_a_tagged_field_must_fill_its_size() -> None:
    request = FetchRequest(cluster_id="abc")
    writer = Writer()
    request.encode(writer, 12)
    content = writer.getvalue()
    assert content.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(MalformedError, match="tagged field ends"):
        FetchRequest.decode(Reader(content[:-6] + b"\x00\x05\x04abc!"), 12)


def test_modules_are_imported_on_first_use() -> None:
    script = (
        "import sys, braidlog.wire.apis as a, braidlog.wire.headers\n"
        "assert 'braidlog.wire.generated.produce' not in sys.modules\n"
        "assert a.APIS[0].request.__name__ == 'ProduceRequest'\n"
        "assert a.APIS[0].request is a.APIS[0].request\n"
        "assert 'braidlog.wire.generated.produce' in sys.modules\n"
        "assert 'braidlog.wire.generated.create_topics' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
