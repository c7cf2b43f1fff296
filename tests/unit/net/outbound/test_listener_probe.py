from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from braidlog.net.outbound import listener_probe
from braidlog.net.outbound.errors import AuthenticationFailed, NoConnection
from braidlog.net.outbound.listener_probe import answers_in_plaintext, explain_plaintext_failure

API_VERSIONS_ANSWER = b"\0\0\0\x06" + b"\0\0\0\x07" + b"\0\0"
TLS_ALERT = b"\x15\x03\x01\0\x02\x02\x28"


@asynccontextmanager
async def listener(answer: bytes | None) -> AsyncIterator[tuple[str, int]]:
    """Answers whatever comes with these bytes, or hangs up; with None it says nothing at all."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            await done.wait()
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[:2]
    done.set()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("answer", [TLS_ALERT, b"\x16\x03\x03\0\x7a"])
async def test_a_listener_that_speaks_tls_is_found_out(answer: bytes) -> None:
    async with listener(answer) as address:
        found = await explain_plaintext_failure(NoConnection("hung up"), address)
    assert isinstance(found, AuthenticationFailed)
    assert "speaks TLS here; set security.protocol=SSL" in str(found)


@pytest.mark.parametrize("answer", [b"", API_VERSIONS_ANSWER, b"HTTP/1.1 400"])
async def test_any_other_answer_leaves_the_problem_as_it_is(answer: bytes) -> None:
    problem = NoConnection("hung up")
    async with listener(answer) as address:
        assert await explain_plaintext_failure(problem, address) is problem


@pytest.mark.parametrize(
    ("answer", "plain"), [(API_VERSIONS_ANSWER, True), (TLS_ALERT, False), (b"", False), (b"HTTP/1.1 400", False)]
)
async def test_a_broker_is_known_by_the_correlation_id_of_its_answer(answer: bytes, plain: bool) -> None:
    async with listener(answer) as address:
        assert await answers_in_plaintext(address) is plain


async def test_a_listener_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_probe, "_PATIENCE_S", 0.05)
    async with listener(None) as address:
        assert not await answers_in_plaintext(address)


async def test_no_listener_is_no_answer() -> None:
    async with listener(b"") as address:
        pass
    assert not await answers_in_plaintext(address)
