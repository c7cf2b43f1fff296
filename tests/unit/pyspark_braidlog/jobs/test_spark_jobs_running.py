"""Files that define pipelines, what they may return, and watching what came of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.jobs.run_lock import RunLock
from pyspark_braidlog.jobs.running import Watch, load_pipeline, start, stop


class FakeQuery:
    """A query that has these reports, one more with each look, and then ends as told."""

    def __init__(self, name: str = "q", reports: list[dict[str, Any]] | None = None, fails: bool = False) -> None:
        self.id = f"id-{name}"
        self.name = name
        self.reports = reports or []
        self.fails = fails
        self.looks = 0
        self.is_stopped = False

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        self.looks += 1
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return self.reports[: self.looks]

    @property
    def isActive(self) -> bool:
        return not self.is_stopped and self.looks < len(self.reports)

    def exception(self) -> BaseException | None:
        return RuntimeError("broken") if self.fails else None

    def stop(self) -> None:
        self.is_stopped = True

    def awaitTermination(self) -> None:
        raise AssertionError("nobody waits without an end")


class FakeWriter:
    def __init__(self) -> None:
        self.set: dict[str, object] = {}

    def trigger(self, **how: object) -> FakeWriter:
        self.set |= how
        return self

    def queryName(self, name: str) -> FakeWriter:
        self.set["name"] = name
        return self

    def start(self) -> FakeQuery:
        return FakeQuery(str(self.set))


def report(batch: int, rows: int) -> dict[str, Any]:
    return {"id": "x", "name": "q", "batchId": batch, "numInputRows": rows}


def test_the_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "words_beside.py").write_text("WORD = 'beside'\n")
    file = tmp_path / "shop.py"
    file.write_text("from words_beside import WORD\ndef pipeline(spark):\n    return f'{WORD} {spark}'\n")
    assert load_pipeline(file)("me") == "beside me"


@pytest.mark.parametrize("text", ["", "pipeline = 3\n"])
def test_a_file_without_the_function(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.py"
    file.write_text(text)
    with pytest.raises(UserError, match=r"defines no function `pipeline`: write `def pipeline\(spark\)"):
        load_pipeline(file)
    with pytest.raises(UserError, match="is no Python file"):
        load_pipeline(tmp_path / "shop.yml")


def test_writers_are_started_and_queries_taken() -> None:
    query = FakeQuery()
    assert start(query, available_now=False) == [query]
    assert [each.name for each in start([FakeWriter(), FakeWriter()], available_now=True)] == [
        "{'availableNow': True}"
    ] * 2
    (named,) = start({"clean": FakeWriter()}, available_now=False)
    assert named.name == "{'name': 'clean'}"


def test_what_is_no_query() -> None:
    for wrong in (None, 3, []):
        with pytest.raises(UserError, match="returned"):
            start(wrong, available_now=False)
    started = FakeQuery()
    with pytest.raises(UserError, match=r"return it without \.start"):
        start(started, available_now=True)
    assert started.is_stopped
    # The others do not stay behind.
    other = FakeQuery()
    with pytest.raises(UserError):
        start([other, None], available_now=False)
    assert other.is_stopped


def test_watching_counts_every_batch_once_until_all_have_ended() -> None:
    query = FakeQuery(reports=[report(0, 5), report(1, 7), report(1, 7), report(2, 0)])
    shown: list[str] = []
    watch = Watch([query], shown.append)
    assert watch.run(threading.Event()) is None
    assert (watch.rows[query.id], watch.batches[query.id]) == (12, 3)
    assert shown[-1].startswith("q: batch 2")


def test_watching_tells_of_a_failure_and_ends_when_told() -> None:
    failing = FakeQuery("a", [report(0, 1)], fails=True)
    going = FakeQuery("b", [report(number, 1) for number in range(1000)])
    assert str(Watch([going, failing], lambda _: None).run(threading.Event())) == "broken"
    told = threading.Event()
    told.set()
    assert Watch([going], lambda _: None).run(told) is None
    assert going.isActive


def test_stopping_goes_on_after_one_that_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    class Stubborn(FakeQuery):
        def stop(self) -> None:
            raise RuntimeError("not now")

    last = FakeQuery()
    stop([Stubborn(), last])
    assert last.is_stopped
    assert "not now" in capsys.readouterr().err


def test_a_lock_is_seen_and_let_go(tmp_path: Path) -> None:
    lock, other = RunLock(tmp_path), RunLock(tmp_path)
    assert other.holder() is None
    assert lock.take()
    assert "process " in (other.holder() or "")
    assert not other.take()
    lock.release()
    assert other.holder() is None
    assert other.take()
    other.release()
    assert RunLock(tmp_path / "missing").take()
