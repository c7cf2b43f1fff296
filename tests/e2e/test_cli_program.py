"""The program as a whole: what needs a process of its own to be seen."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.compilation import is_compiled
from support.broker import Broker, StartBroker, start_braidlog


def test_topic_names_for_the_shell(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    assert topic in cli("completion", "topics").succeeded().lines


def test_version_and_help(cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    reported = cli("version", "--output", "json").succeeded().json
    assert reported["protocol"] == "Kafka 3.9"
    assert isinstance(reported["compiled"], bool)
    assert "first steps:" in cli("--help").succeeded().out
    cli().failed("say what to do", code=2)
    cli("nonsense").failed("invalid choice", code=2)


def test_help_comes_at_once(cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    least = 60.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cli("--help").succeeded()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # Of the processor, so that other processes do not count: about 0.06 s. A heavy import takes most of a second.
    assert least < 0.6


def test_serve_says_when_it_is_uncompiled(tmp_path: Path) -> None:
    with start_braidlog(tmp_path, env={"BRAIDLOG_PURE": "1"}) as broker:
        assert "WARNING braidlog.server: running uncompiled, several times slower" in broker.log()


@pytest.mark.skipif(not is_compiled(), reason="these tests run uncompiled")
def test_serve_says_nothing_when_it_is_compiled(tmp_path: Path) -> None:
    with start_braidlog(tmp_path) as broker:
        assert "compiled" not in broker.log()


# Every noun that talks to a broker, with the least that it needs.
TALKING = [
    ("topics", "list"),
    ("topics", "create", "x"),
    ("configs", "describe", "--broker", "1001"),
    ("produce", "x", "--value", "v"),
    ("consume", "x", "--offset", "earliest"),
    ("consume", "x", "--group", "g"),
    ("groups", "list"),
    ("groups", "describe", "g"),
    ("transactions", "list"),
    ("transactions", "find-hanging"),
    ("topics", "offsets", "x"),
    ("brokers",),
    ("log-dirs",),
    ("users", "list"),
    ("tokens", "list"),
    ("acls", "list"),
    ("delete-records", "x:0:1"),
    ("perf", "produce", "x"),
    ("perf", "consume", "x"),
]


def test_a_stopped_broker_ends_every_command_with_a_sentence(
    start_broker: StartBroker, cli_of: Callable[[Broker], Any]
) -> None:
    broker = start_broker()
    cli = cli_of(broker)
    # Stopped in mid-air: it takes connections and is silent.
    broker.process.signal(signal.SIGSTOP)
    for words in TALKING[:3]:
        cli(*words, "--request-timeout", "1").failed("takes connections but does not answer")
    broker.process.signal(signal.SIGCONT)
    broker.kill()
    for words in TALKING:
        cli(*words).failed(f"no broker answers at {broker.bootstrap}")


def test_a_broker_that_stops_under_a_command_is_unreachable(
    start_broker: StartBroker, cli_of: Callable[[Broker], Any], topic: str
) -> None:
    broker = start_broker()
    cli = cli_of(broker)
    cli("topics", "create", topic).succeeded()
    command = [*cli.program, "produce", topic, "--request-timeout", "3", "-X", "reconnect.backoff.max.ms=100"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cli.environment
    ) as produce:
        assert produce.stdin is not None
        produce.stdin.write("first\n")
        produce.stdin.flush()
        cli("consume", topic, "--offset", "earliest", "--max-messages", "1").succeeded()
        broker.kill()
        _, reported = produce.communicate("second\n", timeout=60)
    assert produce.returncode == 1
    assert "Traceback" not in reported
    line = reported.splitlines()[-1]
    assert "not in the cluster" not in line
    assert "there is no broker" not in line
    assert "is unreachable at" in line or "no broker answers at" in line or "closed the connection" in line


@pytest.mark.parametrize("words", [("topics", "list"), ("completion", "topics"), ("doctor",)])
def test_a_name_that_does_not_resolve(cli_of: Callable[[None], Any], words: tuple[str, ...]) -> None:
    done = cli_of(None)(*words, "--bootstrap", "no-such-host.invalid:9092")
    assert "Traceback" not in done.err
