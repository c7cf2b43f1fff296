"""What stands before a request's body, and how a broker finds out in which version it stands there."""

from __future__ import annotations

from librt.strings import read_i16_be

from braidlog.wire.apis import APIS, request_header_version
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.headers import RequestHeader
from braidlog.wire.reader import Reader


def read_request_header(reader: Reader) -> RequestHeader:
    """Read the header; the reader then stands at the body.

    Every header begins with api key, api version and correlation id, and the first two say how it goes on. Of a
    version that we do not speak these three are read alone, since what follows may have changed; so
    UNSUPPORTED_VERSION can be answered. A key that we do not know is malformed.
    """
    if reader.remaining() < 4:
        raise MalformedError(f"a request of {reader.remaining()} bytes has no header")
    api_key = read_i16_be(reader.buffer, reader.position)
    api_version = read_i16_be(reader.buffer, reader.position + 2)
    api = APIS.get(api_key)
    if api is None:
        raise MalformedError(f"api key {api_key} is unknown")
    return RequestHeader.decode(reader, request_header_version(api_key, api_version) if api.speaks(api_version) else 0)
