"""A whole server in the test's own loop, so that the test can look at its parts while clients are connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from braidlog.broker.server import Server
from braidlog.config.broker import BrokerSettings
from braidlog.wire.message import Message
from support.raw import ask

Check = Callable[[Server], Awaitable[None]]


@asynccontextmanager
async def open_server(directory: Path, settings: Mapping[str, str]) -> AsyncIterator[Server]:
    basics = {"log.dirs": str(directory / "data"), "listeners": "PLAINTEXT://127.0.0.1:0", "braidlog.http.listen": ""}
    server = Server(BrokerSettings({**basics, **settings}), [])
    await server.open()
    try:
        yield server
    finally:
        server.request_stop()
        await server.serve_until_stopped()


def on_server(directory: Path, check: Check, **settings: str) -> None:
    async def main() -> None:
        async with open_server(directory, {key.replace("_", "."): value for key, value in settings.items()}) as server:
            await check(server)

    asyncio.run(asyncio.wait_for(main(), 60))


async def answer(server: Server, name: str, version: int, request: Message) -> Any:
    """What the server says to one request."""
    return await asyncio.to_thread(ask, server.listeners[0].port, name, version, request)


async def until(condition: Callable[[], bool]) -> None:
    """The loop has work under way that makes it true; the test's own deadline ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 - a quota or a log has no event to wait for
        await asyncio.sleep(0.005)
