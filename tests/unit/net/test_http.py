from __future__ import annotations

import asyncio

import pytest

from braidlog.net.http import HttpServer, Page


async def metrics() -> Page:
    return Page(200, "up 1\n")


async def readiness() -> Page:
    return Page(503, "not ready\n")


def ask(request: bytes) -> bytes:
    async def main() -> bytes:
        side_port = HttpServer({"/metrics": metrics, "/readyz": readiness})
        port = await side_port.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        await side_port.stop()
        return answer

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_a_page() -> None:
    head, _, body = ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5" in head
    assert body == b"up 1\n"


def test_a_head_request_gets_no_body() -> None:
    answer = ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 5" in answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"503 Service Unavailable"),
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
    ],
)
def test_other_answers(request_: bytes, status: bytes) -> None:
    assert ask(request_).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("request_", [b"", b"GET /metrics", b"x" * 100_000])
def test_what_is_no_request_is_dropped(request_: bytes) -> None:
    assert ask(request_) == b""
