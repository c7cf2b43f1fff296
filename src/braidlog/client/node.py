"""A blocking connection to one broker: one request at a time, in versions that both sides know."""

from __future__ import annotations

import socket
import struct
from typing import Final, TypeVar

from braidlog import __version__
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.wire.apis import API_VERSIONS, APIS, decode_response, encode_request
from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from braidlog.wire.message import Message

Response = TypeVar("Response", bound=Message)

CLIENT_ID: Final = "braidlog-cli"
# No answer of a sane broker to this client is larger.
_MAX_FRAME: Final = 1 << 30


class NoConnection(UserError):
    """The broker cannot be reached, or went away; whether it acted on the last request is not known."""


class Node:
    def __init__(self, host: str, port: int, timeout_s: float = 30.0) -> None:
        self.host = host
        self.port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as problem:
            raise NoConnection(
                f"no broker answers at {self.address} ({problem.strerror or problem}); "
                "is it running, and is --bootstrap right?"
            ) from problem
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0
        self._offered: dict[int, tuple[int, int]] = {}
        try:
            self._negotiate()
        except BaseException:
            self._socket.close()
            raise

    @property
    def peer(self) -> str:
        """The address that the name stood for."""
        return str(self._socket.getpeername()[0])

    def close(self) -> None:
        self._socket.close()

    def offers(self, api_key: int) -> bool:
        return api_key in self._offered

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak."""
        api = APIS[api_key]
        offered = self._offered.get(api_key)
        if offered is None:
            raise UnsupportedVersionError(f"the broker at {self.address} does not offer {api.name}")
        low, high = max(api.min_version, offered[0]), min(api.max_version, offered[1])
        if at_most is not None:
            high = min(high, at_most)
        if low > high:
            raise UnsupportedVersionError(f"the broker at {self.address} offers no version of {api.name} that fits")
        return high

    def call(self, api_key: int, request: Message, answer: type[Response], *, at_most: int | None = None) -> Response:
        version = self.version_for(api_key, at_most)
        response = self._decoded(api_key, version, self._exchange(api_key, version, request))
        assert isinstance(response, answer)
        return response

    def send_only(self, api_key: int, request: Message, *, at_most: int | None = None) -> None:
        """For what has no answer: a produce with acks=0."""
        self._transmit(self._encoded(api_key, self.version_for(api_key, at_most), request))

    def _negotiate(self) -> None:
        request = ApiVersionsRequest(client_software_name="braidlog", client_software_version=__version__)
        frame = self._exchange(API_VERSIONS, 3, request)
        # A broker that does not know v3 answers in v0; the error code stands at the same place in both.
        version = 0 if struct.unpack_from(">h", frame, 4)[0] == UnsupportedVersionError.code else 3
        response = self._decoded(API_VERSIONS, version, frame)
        assert isinstance(response, ApiVersionsResponse)
        self._offered = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def _encoded(self, api_key: int, version: int, request: Message) -> bytes:
        self._correlation += 1
        try:
            return encode_request(api_key, version, self._correlation, CLIENT_ID, request).getvalue()
        except EncodeError as problem:
            raise UnsupportedVersionError(
                f"the broker at {self.address} has an older {APIS[api_key].name}, which cannot say this: {problem}"
            ) from problem
        except UnicodeEncodeError as problem:
            raise UserError(f"{problem.object!a} is not UTF-8 text, which names have to be") from problem

    def _decoded(self, api_key: int, version: int, frame: bytes) -> Message:
        try:
            return decode_response(api_key, version, frame)[1]
        except MalformedError as problem:
            raise UserError(
                f"{self.address} answered {APIS[api_key].name} with something else ({problem}); "
                "is it a Kafka-compatible broker?"
            ) from problem

    def _exchange(self, api_key: int, version: int, request: Message) -> bytes:
        """Send a request; the answering frame, its correlation id checked."""
        self._transmit(self._encoded(api_key, version, request))
        answer = self._receive()
        if len(answer) < 6 or struct.unpack_from(">i", answer)[0] != self._correlation:
            raise UserError(f"{self.address} answered out of order; is it a Kafka-compatible broker?")
        return answer

    def _transmit(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as problem:
            raise self._lost(problem) from problem

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        if not 0 < size <= _MAX_FRAME:
            raise UserError(
                f"{self.address} does not speak the Kafka protocol in clear text; "
                "is it the port of another service, or a TLS listener?"
            )
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            try:
                piece = self._socket.recv(min(size - len(pieces), 1 << 20))
            except TimeoutError as problem:
                raise NoConnection(
                    f"{self.address} did not answer in time; is it busy, or not a Kafka-compatible broker? "
                    "--request-timeout gives it longer"
                ) from problem
            except OSError as problem:
                raise self._lost(problem) from problem
            if not piece:
                raise NoConnection(
                    f"{self.address} closed the connection; its log says why, unless it is no Kafka-compatible broker"
                )
            pieces += piece
        return bytes(pieces)

    def _lost(self, problem: OSError) -> NoConnection:
        return NoConnection(f"lost the connection to {self.address}: {problem.strerror or problem}")
