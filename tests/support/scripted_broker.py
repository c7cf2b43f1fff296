"""A broker on a real loopback socket whose answers a test writes; everything else it answers by itself."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterable

from braidlog.wire.apis import API_VERSIONS, APIS, decode_request, encode_response, request_header_version
from braidlog.wire.generated.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from braidlog.wire.generated.headers import RequestHeader
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader

# What a script may say instead of a response.
SILENCE = "silence"
HANG_UP = "hang up"
GARBAGE = "garbage"

Answer = Message | str
Script = Callable[[int, Message], Answer]


class ScriptedBroker:
    def __init__(
        self, script: Script, *, offered: Iterable[int] = (0, 1, 3, 10, 18), tls: ssl.SSLContext | None = None
    ) -> None:
        self.script = script
        self._tls = tls
        self.offered = list(offered)
        self.requests: list[tuple[int, int, str | None]] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> ScriptedBroker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                if not self._answer(await reader.readexactly(size), writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        api_key, version = struct.unpack_from(">hh", frame)
        reader = Reader(frame)
        header = RequestHeader.decode(reader, request_header_version(api_key, version))
        request = decode_request(api_key, version, reader)
        self.requests.append((api_key, version, header.client_id))
        answer = self._versions() if api_key == API_VERSIONS else self.script(api_key, request)
        if answer == HANG_UP:
            return False
        if answer == GARBAGE:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif isinstance(answer, Message):
            for piece in encode_response(api_key, version, header.correlation_id, answer).parts():
                assert isinstance(piece, (bytes, memoryview))
                writer.write(piece)
        return True

    def _versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=APIS[key].min_version, max_version=APIS[key].stable_max)
                for key in self.offered
            ],
            finalized_features=[FinalizedFeatureKey(name="transaction.version", max_version_level=2)],
            finalized_features_epoch=1,
        )
