from __future__ import annotations

import pytest

from braidlog.wire.apis import (
    APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.api_versions import ApiVersion, ApiVersionsResponse
from braidlog.wire.generated.headers import ResponseHeader
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.wire.headers import read_request_header
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


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
