from __future__ import annotations

import os
import socket

import pytest

from braidlog.cli.checks import listening, live_cluster, processes
from braidlog.cli.checks.finding import OK, PROBLEM, WARNING
from braidlog.cli.checks.listening import check_advertised, check_listeners, check_port, judge_open_files
from braidlog.config.broker import BrokerSettings
from braidlog.core.types import Endpoint
from support.findings import status


def test_a_free_and_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finding = check_port(Endpoint("PLAINTEXT", "127.0.0.1", port))
        assert status(finding) == PROBLEM
        if os.path.exists("/proc/net/tcp") and processes.listener_on(port) is not None:
            assert f"process {os.getpid()}" in finding.text
        assert status(check_port(Endpoint("PLAINTEXT", "127.0.0.1", port), broker=1)) == OK
    assert status(check_port(Endpoint("PLAINTEXT", "127.0.0.1", 0))) == OK
    assert status(check_port(Endpoint("PLAINTEXT", "192.0.2.1", 9092))) == PROBLEM


def test_advertised_names_must_resolve() -> None:
    def unknown(host: str, port: int) -> object:
        raise socket.gaierror(-2, "Name or service not known")

    endpoint = Endpoint("PLAINTEXT", "broker.example", 9092)
    finding = check_advertised(endpoint, unknown)
    assert status(finding) == PROBLEM
    assert "advertised.listeners" in finding.advice
    assert status(check_advertised(endpoint, lambda host, port: [])) == OK


def test_listeners_that_cannot_be() -> None:
    settings = BrokerSettings({"listeners": "PLAINTEXT://0.0.0.0:9092"})
    (finding,) = check_listeners(settings, None)
    assert status(finding) == PROBLEM
    assert "0.0.0.0" in finding.text


@pytest.mark.parametrize(
    ("limit", "partitions", "used", "expected"),
    [
        (65536, 100, None, OK),
        (1024, 100, None, WARNING),
        (4096, 5000, None, WARNING),
        (100, 0, None, PROBLEM),
        (65536, 100, 65000, PROBLEM),
    ],
)
def test_how_many_files_may_be_open(limit: int, partitions: int, used: int | None, expected: str) -> None:
    assert status(judge_open_files(limit, partitions, used)) == expected


def test_loopback_addresses() -> None:
    assert live_cluster._is_loopback("127.0.0.1")
    assert live_cluster._is_loopback("::1")
    assert not live_cluster._is_loopback("10.0.0.1")
    assert not live_cluster._is_loopback("fe80::1%eth0")
    assert listening.check_open_files(0, None).check == "open files"
