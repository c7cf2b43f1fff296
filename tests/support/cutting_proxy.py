"""A proxy before one broker that cuts connections on order.

At once, in the middle of a request, or after the broker took it and before its answer came back.

The broker listens on `proxy.broker_port` and has to tell clients the proxy's address: give it `proxy.settings()`.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any, Self

from support.ports import lasting_port

_PIECE = 64 * 1024


class CuttingProxy:
    """Use as a context manager."""

    def __init__(self) -> None:
        self.port = lasting_port()
        self.broker_port = lasting_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.connections = 0
        self.cuts = 0
        # Cut a connection after so many bytes from the client, counted over all of them; none: never.
        self._cut_after: int | None = None
        # Requests reach the broker, answers do not reach the client.
        self._answers_lost = False
        self._delay_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting proxy", daemon=True)

    def settings(self) -> dict[str, str]:
        """What the broker has to be started with."""
        return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}

    # Orders, from the test's thread

    def cut(self) -> None:
        """End all connections now."""
        self._do(self._cut)

    def cut_in_request(self, after_bytes: int) -> None:
        """Forward so many bytes more, then end all connections: in the middle of what is being sent."""
        self._do(lambda: setattr(self, "_cut_after", after_bytes))

    def lose_answers(self, lost: bool) -> None:
        """Keep the answers of the broker back; a `cut` then leaves the client in doubt."""
        self._do(lambda: setattr(self, "_answers_lost", lost))

    def delay_answers(self, seconds: float) -> None:
        self._do(lambda: setattr(self, "_delay_s", seconds))

    def misbehave(self, seed: int, pause_s: float = 0.05) -> Callable[[], None]:
        """Cut in all three ways at random moments until the returned function is called."""
        ended = threading.Event()

        def work() -> None:
            chooser = random.Random(seed)
            while not ended.wait(chooser.uniform(0, pause_s * 2)):
                way = chooser.randrange(3)
                if way == 0:
                    self.cut()
                elif way == 1:
                    self.cut_in_request(chooser.randrange(20_000))
                else:
                    self.lose_answers(True)
                    ended.wait(chooser.uniform(0, 0.02))
                    self.cut()
                    self.lose_answers(False)

        thread = threading.Thread(target=work, name="misbehaving")
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()
            self._do(lambda: setattr(self, "_cut_after", None))

        return end

    def _do(self, act: Callable[[], Any]) -> None:
        async def call() -> None:
            act()

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    # The loop's side

    def _cut(self) -> None:
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, up_writer}
        self._writers |= pair
        try:
            await asyncio.gather(
                self._forward(reader, up_writer, from_client=True), self._forward(up_reader, writer, from_client=False)
            )
        except (OSError, asyncio.CancelledError):
            # The proxy ends; a task that is cancelled would be logged by the server.
            pass
        finally:
            for each in pair:
                each.transport.abort()
            self._writers -= pair

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_client: bool) -> None:
        while data := await reader.read(_PIECE):
            if from_client and self._cut_after is not None:
                if len(data) >= self._cut_after:
                    writer.write(data[: self._cut_after])
                    self._cut_after = None
                    await writer.drain()
                    self._cut()
                    return
                self._cut_after -= len(data)
            if not from_client and self._delay_s:
                await asyncio.sleep(self._delay_s)
            if from_client or not self._answers_lost:
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def __enter__(self) -> Self:
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            self._cut()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
