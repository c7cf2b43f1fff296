"""Every API by its key: versions, classes (imported on first use), and whole frames of requests and responses."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.headers import RequestHeader, ResponseHeader
from braidlog.wire.generated.registry import ROWS
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer

# Plain integers: they are compared with every request's key.
PRODUCE: Final = int(ApiKey.PRODUCE)
CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


class Api:
    """One API.

    `min_version..max_version` is what this codec speaks, 4.x included; `stable_max` is the highest version that
    Kafka 3.9 speaks. `flexible_from` is the first version with tagged fields, -1 when there is none.
    """

    __slots__ = (
        "_request",
        "_response",
        "flexible_from",
        "key",
        "max_version",
        "min_version",
        "module",
        "name",
        "stable_max",
    )

    def __init__(
        self,
        key: int,
        name: str,
        module: str,
        min_version: int,
        max_version: int,
        stable_max: int,
        flexible_from: int,
    ) -> None:
        self.key = key
        self.name = name
        self.module = f"braidlog.wire.generated.{module}"
        self.min_version = min_version
        self.max_version = max_version
        self.stable_max = stable_max
        self.flexible_from = flexible_from
        self._request: type[Message] | None = None
        self._response: type[Message] | None = None

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, {self.min_version}-{self.max_version})"

    @property
    def request(self) -> type[Message]:
        if self._request is None:
            self._request = self._load("Request")
        return self._request

    @property
    def response(self) -> type[Message]:
        if self._response is None:
            self._response = self._load("Response")
        return self._response

    def _load(self, kind: str) -> type[Message]:
        loaded: type[Message] = getattr(import_module(self.module), self.name + kind)
        return loaded

    def speaks(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        return 0 <= self.flexible_from <= version


APIS: Final[dict[int, Api]] = {row[0]: Api(*row) for row in ROWS}


def api_by_name(name: str) -> Api:
    for api in APIS.values():
        if api.name == name:
            return api
    raise KeyError(name)


def request_header_version(api_key: int, version: int) -> int:
    """2 for flexible versions; ControlledShutdown's first version alone has no client id."""
    if APIS[api_key].is_flexible(version):
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 for flexible versions, but 0 for ApiVersions: its reader does not know yet what the broker speaks (KIP-511)."""
    if api_key != API_VERSIONS and APIS[api_key].is_flexible(version):
        return 1
    return 0


def _spoken(api_key: int, version: int) -> Api:
    api = APIS.get(api_key)
    if api is None or not api.speaks(version):
        name = str(api_key) if api is None else f"{api.name} ({api.min_version}-{api.max_version})"
        raise EncodeError(f"version {version} of API {name} is unknown")
    return api


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> Writer:
    """A whole request frame, its size first."""
    _spoken(api_key, version)
    w = Writer()
    w.begin_frame()
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    header.encode(w, request_header_version(api_key, version))
    message.encode(w, version)
    w.end_frame()
    return w


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> Writer:
    """A whole response frame, its size first; `parts()` has its pieces, spliced record batches included."""
    api = _spoken(api_key, version)
    w = Writer()
    w.begin_frame()
    w.int32(correlation_id)
    if 0 <= api.flexible_from <= version and api_key != API_VERSIONS:
        w.uvarint(0)
    message.encode(w, version)
    w.end_frame()
    return w


def decode_request(api_key: int, version: int, reader: Reader) -> Message:
    """The body of a request, whose header was read already; as in Kafka, bytes after it are ignored."""
    api = APIS[api_key]
    if not api.speaks(version):
        raise MalformedError(f"{api.name} has no version {version}")
    return api.request.decode(reader, version)


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Message]:
    """Correlation id and message of a response frame without its size."""
    reader = Reader(frame)
    header = ResponseHeader.decode(reader, response_header_version(api_key, version))
    return header.correlation_id, APIS[api_key].response.decode(reader, version)
