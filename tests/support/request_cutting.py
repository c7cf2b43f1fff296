"""A proxy that cuts a connection at a named request: before the broker gets it, or before its answer comes back."""

from __future__ import annotations

import asyncio
import struct

from support.cutting_proxy import CuttingProxy

REQUEST, ANSWER = "request", "answer"


class RequestCutter(CuttingProxy):
    """`lose(api_key, REQUEST | ANSWER)` for the next request of that kind; `lost` counts those that were."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0
        self._armed: tuple[int, str] | None = None
        # Connections whose next answer is not to be seen.
        self._doomed: set[asyncio.StreamWriter] = set()

    def lose(self, api_key: int, what: str) -> None:
        self._do(lambda: setattr(self, "_armed", (api_key, what)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, up_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._requests(reader, up_writer, writer), self._answers(up_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in pair:
                each.transport.abort()
            self._writers -= pair
            self._doomed.discard(writer)

    async def _requests(
        self, reader: asyncio.StreamReader, up: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(struct.unpack(">i", size)[0])
            if self._armed is not None and struct.unpack_from(">h", frame)[0] == self._armed[0]:
                self.lost += 1
                what, self._armed = self._armed[1], None
                if what == REQUEST:
                    raise ConnectionAbortedError
                self._doomed.add(client)
            up.write(size + frame)
            await up.drain()

    async def _answers(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if client in self._doomed:
                raise ConnectionAbortedError
            client.write(data)
            await client.drain()
        raise ConnectionAbortedError
