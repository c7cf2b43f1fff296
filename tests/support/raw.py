"""Requests and responses as they are on the wire, one at a time, over a plain socket."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from braidlog.core.slices import ByteSlice
from braidlog.wire.apis import APIS, Api, api_by_name, decode_response, encode_request
from braidlog.wire.message import Message, field_names

TIMEOUT_S = 30.0


class RawConnection:
    """A blocking connection to a broker that speaks whole frames."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._correlation = 0

    @property
    def local_port(self) -> int:
        return int(self._socket.getsockname()[1])

    def send_frame(self, body: bytes) -> None:
        """A frame: the size is put in front."""
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def send_bytes(self, raw: bytes) -> None:
        """Anything at all, frame or not."""
        self._socket.sendall(raw)

    def receive_frame(self) -> bytes | None:
        """The next frame without its size; None when the broker closed the connection instead."""
        size = self._receive(4)
        return None if size is None else self._receive(struct.unpack(">i", size)[0])

    def _receive(self, count: int) -> bytes | None:
        got = bytearray()
        while len(got) < count:
            try:
                more = self._socket.recv(count - len(got))
            except ConnectionResetError:
                return None
            if not more:
                return None
            got += more
        return bytes(got)

    def ask(self, name: str, version: int, request: Message) -> Message:
        """The broker's answer to one request."""
        api = api_by_name(name)
        self._correlation += 1
        frame = encode_request(api.key, version, self._correlation, "raw", request)
        self.send_bytes(b"".join(bytes(part) for part in frame.parts()))
        answer = self.receive_frame()
        assert answer is not None, f"{name} v{version}: the broker closed the connection"
        correlation, response = decode_response(api.key, version, answer)
        assert correlation == self._correlation
        return response

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ask(port: int, name: str, version: int, request: Message, host: str = "127.0.0.1") -> Message:
    with RawConnection(port, host) as connection:
        return connection.ask(name, version, request)


def versions_of(name: str) -> list[int]:
    """The versions of an API that Kafka 3.9 speaks."""
    api: Api = api_by_name(name)
    return list(range(api.min_version, api.stable_max + 1))


def as_plain(value: Any) -> Any:
    """A message as dicts, lists and plain values."""
    if isinstance(value, Message):
        return {name: as_plain(getattr(value, name)) for name in field_names(type(value))}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, ByteSlice):
        return value.tobytes()
    if isinstance(value, memoryview):
        return bytes(value)
    return value


__all__ = ["APIS", "RawConnection", "as_plain", "ask", "versions_of"]
