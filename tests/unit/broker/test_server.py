from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from braidlog.broker.server import explain_unreachable, problem_with
from braidlog.core.types import Endpoint


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_an_address_that_answers_is_no_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", server.getsockname()[1])
        assert asyncio.run(problem_with(endpoint)) is None


def test_a_wrong_address_is_explained_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", free_port())
    with caplog.at_level(logging.WARNING):
        asyncio.run(explain_unreachable((endpoint,)))
    assert str(endpoint) in caplog.text
    assert "set advertised.listeners to PLAINTEXT://" in caplog.text


def test_a_name_that_nobody_knows_is_a_problem() -> None:
    assert asyncio.run(problem_with(Endpoint("PLAINTEXT", "no-such-host.invalid", 9092)))
