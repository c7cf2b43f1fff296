"""`braidlog produce` that is told to end while it waits for what it has sent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.cli.commands import produce
from braidlog.cli.program import main
from braidlog.cli.records import record_writer


class FakeBatch:
    """Of one record; written as soon as it was waited for."""

    parts, error, count, base_offset, partition = None, None, 1, 7, 0

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def all_done(self) -> bool:
        return "flush" in self._calls


class FakeProducer:
    """Takes one record; is interrupted in what `interrupted` names, once."""

    def __init__(self, interrupted: str) -> None:
        self._interrupted = interrupted
        self.calls: list[str] = []
        self._limits = SimpleNamespace(linger_s=0.0, batch_size=16384, memory=1 << 20, max_request=1 << 20)

    def partitions_for(self, topic: str) -> list[Any]:
        return [SimpleNamespace(index=0, leader=1)]

    def _append_batch(self, *_: Any) -> Any:
        return SimpleNamespace(_batch=FakeBatch(self.calls))

    def close(self, timeout_s: float) -> None:
        self.calls.append("close")

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> None:
            if name == self._interrupted:
                self._interrupted = ""
                signal.raise_signal(signal.SIGTERM)
            self.calls.append(name)

        return call


def produced(monkeypatch: pytest.MonkeyPatch, lines: Path, producer: FakeProducer, *words: str) -> int:
    @contextmanager
    def connected(options: Any) -> Iterator[Any]:
        options.bootstrap, options.request_timeout = "nowhere:1", 30.0
        yield SimpleNamespace(topic=lambda name, create: SimpleNamespace(partitions=[0]), settings={})

    monkeypatch.setattr(produce, "connect", connected)
    monkeypatch.setattr(record_writer, "Producer", lambda settings: producer)
    lines.write_text("hello\n")
    return main(["produce", "t", "--file", str(lines), *words])


def test_what_was_sent_is_still_waited_for_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = FakeProducer("flush")
    assert produced(monkeypatch, tmp_path / "lines", producer) == 143
    assert producer.calls == ["flush", "close"]
    assert "interrupted: 1 record" in capsys.readouterr().err


def test_a_commit_that_was_begun_is_carried_through(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = FakeProducer("commit_transaction")
    assert produced(monkeypatch, tmp_path / "lines", producer, "--transactional-id", "x") == 143
    assert producer.calls == ["init_transactions", "begin_transaction", "flush", "commit_transaction", "close"]
    assert "interrupted: 1 record" in capsys.readouterr().err


def test_a_transaction_is_aborted_before_its_commit_was_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    producer = FakeProducer("flush")
    assert produced(monkeypatch, tmp_path / "lines", producer, "--transactional-id", "x") == 143
    assert producer.calls == ["init_transactions", "begin_transaction", "abort_transaction", "close"]


def test_a_directory_is_no_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--file", str(tmp_path)]
    assert produced(monkeypatch, tmp_path / "lines", FakeProducer(""), *words) == 1
    assert f"{tmp_path}: Is a directory" in capsys.readouterr().err
