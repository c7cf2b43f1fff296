"""When keys are fetched, what becomes of a failure, and how much a hostile client can ask for."""

from __future__ import annotations

import asyncio
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from braidlog.broker.authentication.verification_keys import (
    JwksEndpoint,
    RefreshingKeySet,
    RefreshSchedule,
    VerificationKeys,
    check_key_set,
    fetch_key_set,
)
from braidlog.core.clock import ManualClock, SystemClock
from braidlog.core.errors import UserError
from braidlog.core.tasks import Tasks
from braidlog.security.json_web_keys import BadKeySetError, JsonWebKeySet, parse_key_set
from support.token_issuer import Issuer, key_set

ENDPOINT = JwksEndpoint("https://idp.example.com/keys", 3600.0, 0.5, 3.0)
OLD, NEW = parse_key_set(key_set(Issuer("old").published())), parse_key_set(key_set(Issuer("new").published()))


def test_keys_are_fetched_at_once_and_then_now_and_then() -> None:
    schedule = RefreshSchedule(ENDPOINT, 100.0)
    assert schedule.next_at == 100.0
    schedule.begun(100.0)
    schedule.succeeded(101.0)
    assert schedule.next_at == 101.0 + 3600.0


def test_failures_are_tried_again_ever_more_slowly() -> None:
    schedule = RefreshSchedule(ENDPOINT, 0.0)
    pauses = []
    for _ in range(5):
        schedule.failed(10.0)
        pauses.append(schedule.next_at - 10.0)
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0]
    schedule.succeeded(20.0)
    schedule.failed(20.0)
    assert schedule.next_at == 20.5
    without_pause = RefreshSchedule(JwksEndpoint("https://x", 0.0, 0.0, 0.0), 0.0)
    without_pause.failed(5.0)
    assert without_pause.next_at > 5.0
    without_pause.succeeded(5.0)
    assert without_pause.next_at > 5.0


def test_unknown_keys_bring_the_next_fetch_nearer_but_not_at_will() -> None:
    schedule = RefreshSchedule(ENDPOINT, 0.0)
    schedule.begun(0.0)
    schedule.succeeded(1.0)
    assert schedule.unknown_key()
    assert schedule.next_at == 10.0
    # However many of them there are.
    assert not schedule.unknown_key()
    schedule.begun(50.0)
    schedule.failed(51.0)
    # It is asked soon anyway.
    assert not schedule.unknown_key()
    assert schedule.next_at == 51.5


class Endpoint:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.answers: list[JsonWebKeySet | Exception] = []
        self.asked = 0

    def fetch(self, url: str) -> JsonWebKeySet:
        assert url == ENDPOINT.url
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def next_fetch(keys: RefreshingKeySet) -> JsonWebKeySet:
    """What is known after it."""
    async with asyncio.timeout(60):
        await keys.asked.wait()
    keys.asked.clear()
    return keys.keys


def test_the_keys_of_before_count_while_the_issuer_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog.security")

    async def main() -> None:
        endpoint = Endpoint()
        endpoint.answers = [TimeoutError(), OLD, BadKeySetError("it is not JSON"), NEW]
        keys = RefreshingKeySet(JwksEndpoint(ENDPOINT.url, 0.1, 0.1, 0.1), SystemClock(), endpoint.fetch)
        task = asyncio.create_task(keys.refresh())
        assert len(await next_fetch(keys)) == 0
        assert [await next_fetch(keys) for _ in range(3)] == [OLD, OLD, NEW]
        task.cancel()

    asyncio.run(main())
    assert "(TimeoutError): logins with OAUTHBEARER are refused until it answers" in caplog.text
    assert "(it is not JSON): the keys of before count until it answers" in caplog.text
    assert caplog.text.count("tokens are verified with 1 keys") == 2


def test_an_unknown_key_wakes_who_sleeps_for_an_hour() -> None:
    async def main() -> None:
        clock = ManualClock()
        endpoint = Endpoint()
        endpoint.answers = [OLD, NEW]
        keys = RefreshingKeySet(ENDPOINT, clock, endpoint.fetch)
        task = asyncio.create_task(keys.refresh())
        assert await next_fetch(keys) is OLD
        clock.advance(11)
        for _ in range(100):
            keys.unknown_key()
        assert await next_fetch(keys) is NEW
        for _ in range(100):
            keys.unknown_key()
        await asyncio.sleep(0)
        assert endpoint.asked == 2
        task.cancel()

    asyncio.run(main())


def test_listeners_share_an_endpoint(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set(Issuer().published()))

    async def main() -> None:
        tasks = Tasks("test")
        every = VerificationKeys(SystemClock(), tasks)
        endpoint = JwksEndpoint(file.as_uri(), 3600.0, 0.1, 0.1)
        first, missing = every.of(endpoint), every.of(endpoint._replace(url=f"{file.as_uri()}.gone"))
        assert every.of(endpoint) is first
        async with asyncio.timeout(60):
            await every.asked()
        assert (len(first.keys), len(missing.keys)) == (1, 0)
        await tasks.close()

    asyncio.run(main())


def test_over_http() -> None:
    answers = [(200, key_set(Issuer("web").published())), (503, "later"), (200, "<html>")]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.pop(0)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/keys"
            assert [key.kid for key in fetch_key_set(url).keys] == ["web"]
            with pytest.raises(OSError, match="503"):
                fetch_key_set(url)
            with pytest.raises(BadKeySetError, match="not JSON"):
                fetch_key_set(url)
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(OSError):
        fetch_key_set(url)


def test_an_address_is_looked_at_before_the_start(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    with pytest.raises(UserError, match=r"cannot be read: .*No such file"):
        check_key_set(file.as_uri())
    file.write_text("{}")
    with pytest.raises(UserError, match="cannot be read: it is not of the form"):
        check_key_set(file.as_uri())
    file.write_text(key_set(Issuer().published()))
    check_key_set(file.as_uri())
    # Nobody is asked over the network: who issues tokens may answer later.
    check_key_set("https://192.0.2.1/keys")
    with pytest.raises(UserError, match="begins with none of https://"):
        check_key_set(str(file))
