"""The side port: a few read-only pages (metrics, health) over the smallest sufficient HTTP/1.1."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

log = logging.getLogger("braidlog.http")

_MAX_HEAD = 8192
_HEAD_TIMEOUT_S = 10.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Page(NamedTuple):
    status: int
    body: str
    content_type: str = "text/plain; charset=utf-8"


class HttpServer:
    """Serves pages by path; each connection answers one request and closes."""

    def __init__(self, pages: dict[str, Callable[[], Awaitable[Page]]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError) as problem:
            log.debug("side port: dropped a request: %s", problem)
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        request = head.split(b"\r\n", 1)[0].split(b" ")
        if len(request) != 3:
            return _render(Page(400, "not an HTTP request\n"), body=True)
        method, target, _version = request
        if method not in (b"GET", b"HEAD"):
            return _render(Page(405, "only GET and HEAD\n"), body=True)
        path = target.split(b"?", 1)[0].decode("latin-1")
        page = self._pages.get(path)
        if page is None:
            known = " ".join(sorted(self._pages))
            return _render(Page(404, f"no such page; there are: {known}\n"), body=True)
        return _render(await page(), body=method == b"GET")


def _render(page: Page, *, body: bool) -> bytes:
    content = page.body.encode()
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode()
    return head + content if body else head
