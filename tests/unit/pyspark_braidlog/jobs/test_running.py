"""Files that define pipelines, what they may return, and watching what came of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.jobs.running import QueryMonitor, load_pipeline, start, stop


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
    watch = QueryMonitor([query], shown.append)
    assert watch.run(threading.Event()) is None
    assert (watch.rows[query.id], watch.batches[query.id]) == (12, 3)
    assert shown[-1].startswith("q: batch 2")


def topic_report(batch: int, rows: int, end: int, latest: int | None, *, idle: bool = False) -> dict[str, Any]:
    source = {"endOffset": {"t": {"0": end}}, "latestOffset": None if latest is None else {"t": {"0": latest}}}
    durations = {"triggerExecution": 1} if idle else {"triggerExecution": 2, "addBatch": 1}
    return {**report(batch, rows), "timestamp": f"{batch} {latest}", "durationMs": durations, "sources": [source]}


def test_reports_of_a_query_that_idles_are_no_batches_but_say_its_lag() -> None:
    reports = [topic_report(3, 5, 10, 10), topic_report(4, 0, 10, 12, idle=True), topic_report(4, 2, 12, 13)]
    query = FakeQuery(reports=[*reports, topic_report(5, 0, 12, 19, idle=True)])
    watch = QueryMonitor([query], lambda _: None)
    assert watch.run(threading.Event()) is None
    assert (watch.rows[query.id], watch.batches[query.id], watch.lag(query.id)) == (7, 2, 7)
    assert watch.paces[query.id].batch == 4
    nothing_new = FakeQuery("n", reports=[topic_report(4, 0, 10, 10, idle=True)])
    watch = QueryMonitor([nothing_new], lambda _: None)
    watch.run(threading.Event())
    assert (watch.batches[nothing_new.id], watch.lag(nothing_new.id)) == (0, 0)


def test_a_batch_that_was_tried_again_leaves_a_lag_too() -> None:
    """Spark reports it without what there is to read, and says nothing more when nothing more is there."""
    again = FakeQuery(reports=[topic_report(3, 5, 10, None)])
    watch = QueryMonitor([again], lambda _: None)
    watch.run(threading.Event())
    assert watch.lag(again.id) == 0
    stopped = FakeQuery("s", reports=[topic_report(3, 5, 10, None)] * 9)
    watch = QueryMonitor([stopped], lambda _: None)
    watch.look()
    assert watch.lag(stopped.id) is None
    no_topic = FakeQuery("f", reports=[report(0, 5)])
    watch = QueryMonitor([no_topic], lambda _: None)
    watch.run(threading.Event())
    assert watch.lag(no_topic.id) is None


def test_watching_tells_of_a_failure_and_ends_when_told() -> None:
    failing = FakeQuery("a", [report(0, 1)], fails=True)
    going = FakeQuery("b", [report(number, 1) for number in range(1000)])
    assert str(QueryMonitor([going, failing], lambda _: None).run(threading.Event())) == "broken"
    reported = threading.Event()
    reported.set()
    assert QueryMonitor([going], lambda _: None).run(reported) is None
    assert going.isActive


def test_stopping_goes_on_after_one_that_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    class Stubborn(FakeQuery):
        def stop(self) -> None:
            raise RuntimeError("not now")

    last = FakeQuery()
    stop([Stubborn(), last])
    assert last.is_stopped
    assert "not now" in capsys.readouterr().err
