"""What stands before a request's body, and how a broker finds out in which version it stands there."""

from __future__ import annotations

from librt.strings import read_i16_be

from braidlog.wire.apis import APIS, request_header_version, response_header_version
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.headers import RequestHeader, ResponseHeader
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "read_request_header",
    "read_response_header",
    "request_header_version",
    "response_header_version",
    "write_response_header",
]


def read_request_header(reader: Reader) -> RequestHeader:
    """Read the header; the reader then stands at the body.

    Every header version begins with api key and api version, and those two say which header version it is. This
    holds for versions of an API that we do not speak, too, so that UNSUPPORTED_VERSION can be answered; a key that
    we do not know is malformed.
    """
    if reader.remaining() < 4:
        raise MalformedError(f"a request of {reader.remaining()} bytes has no header")
    api_key = read_i16_be(reader.buffer, reader.position)
    api_version = read_i16_be(reader.buffer, reader.position + 2)
    if api_key not in APIS:
        raise MalformedError(f"api key {api_key} is unknown")
    if api_version < 0:
        raise MalformedError(f"api version {api_version} of api key {api_key} is negative")
    return RequestHeader.decode(reader, request_header_version(api_key, api_version))


def read_response_header(reader: Reader, api_key: int, version: int) -> ResponseHeader:
    return ResponseHeader.decode(reader, response_header_version(api_key, version))


def write_response_header(writer: Writer, api_key: int, version: int, correlation_id: int) -> None:
    header = ResponseHeader(correlation_id=correlation_id)
    header.encode(writer, response_header_version(api_key, version))
