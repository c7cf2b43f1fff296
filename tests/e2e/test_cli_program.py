"""The program as a whole: what needs a process of its own to be seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.compilation import is_compiled
from support.broker import start_braidlog


def test_topic_names_for_the_shell(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    assert topic in cli("completion", "topics").succeeded().lines


def test_version_and_help(cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    told = cli("version", "--output", "json").succeeded().json
    assert told["protocol"] == "Kafka 3.9"
    assert isinstance(told["compiled"], bool)
    assert "first steps:" in cli("--help").succeeded().out
    cli().failed("say what to do", code=2)
    cli("nonsense").failed("invalid choice", code=2)


def test_help_comes_at_once(cli_of: Callable[[None], Any]) -> None:
    cli = cli_of(None)
    fastest = 60.0
    for _ in range(3):
        began = time.perf_counter()
        cli("--help").succeeded()
        fastest = min(fastest, time.perf_counter() - began)
    # About 0.06 s on an idle machine; a heavy import would show even on a busy one.
    assert fastest < 1.0


def test_serve_says_when_it_is_uncompiled(tmp_path: Path) -> None:
    with start_braidlog(tmp_path, env={"BRAIDLOG_PURE": "1"}) as broker:
        assert "WARNING braidlog.server: running uncompiled, several times slower" in broker.log()


@pytest.mark.skipif(not is_compiled(), reason="these tests run uncompiled")
def test_serve_says_nothing_when_it_is_compiled(tmp_path: Path) -> None:
    with start_braidlog(tmp_path) as broker:
        assert "compiled" not in broker.log()
