"""What a run writes down is what its reports said."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.run_record import MESSAGE_LIMIT, Failure, Recorder, RunRecord, message_of, why_final


def report(
    when: str = "call", *, outcome: str = "failed", longrepr: object = "a\nE boom", marked: bool = False
) -> pytest.TestReport:
    keywords = {"never_repeated": 1} if marked else {}
    return pytest.TestReport("t.py::a", ("t.py", 1, "a"), keywords, outcome, longrepr, when)  # type: ignore[arg-type]


class Session:
    shouldstop: bool | str = False
    shouldfail: bool | str = False

    class config:
        class option:
            file_or_dir = ("tests",)


def written(recorder: Recorder, path: Path, session: Session | None = None) -> RunRecord:
    recorder.pytest_sessionfinish(session or Session())  # type: ignore[arg-type]
    found = RunRecord.read(path)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("failed", "final"),
    [
        (report(), ""),
        (report("setup"), ""),
        (report("teardown"), "what failed is the clean-up, which may be that of other tests, too"),
        (report("???"), "its process crashed"),
        (report(marked=True), "it is marked never_repeated"),
    ],
)
def test_what_may_be_tried_again(failed: pytest.TestReport, final: str) -> None:
    assert why_final(failed) == final


def test_a_failure_that_is_final_counts_beside_one_that_is_not(tmp_path: Path) -> None:
    path = tmp_path / "record"
    recorder = Recorder(path)
    recorder.pytest_runtest_logreport(report())
    recorder.pytest_runtest_logreport(report("teardown"))
    recorder.pytest_runtest_logreport(report("setup"))
    (failure,) = written(recorder, path).failures
    assert failure.final.startswith("what failed is the clean-up")


def test_what_passed_did_so_in_its_call(tmp_path: Path) -> None:
    path = tmp_path / "record"
    recorder = Recorder(path)
    for when in ("setup", "teardown"):
        recorder.pytest_runtest_logreport(report(when, outcome="passed"))
    assert written(recorder, path) == RunRecord(True, ["tests"], [], [])
    recorder.pytest_runtest_logreport(report(outcome="passed"))
    assert written(recorder, path).passed == ["t.py::a"]


@pytest.mark.parametrize("name", ["shouldstop", "shouldfail"])
def test_a_run_that_was_stopped_is_not_complete(tmp_path: Path, name: str) -> None:
    session = Session()
    setattr(session, name, "stopping after 1 failures")
    assert not written(Recorder(tmp_path / "record"), tmp_path / "record", session).complete


def test_a_file_that_cannot_be_collected_makes_a_run_incomplete(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "record")
    recorder.pytest_collectreport(pytest.CollectReport("t.py", "failed", "ImportError", None))
    recorder.pytest_collectreport(pytest.CollectReport("u.py", "passed", None, []))
    assert not written(recorder, tmp_path / "record").complete


def test_a_run_without_a_record_has_died(tmp_path: Path) -> None:
    assert RunRecord.read(tmp_path / "record") is None


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = RunRecord(True, ["tests"], [Failure("a", "m", "why")], ["b"])
    record.write(tmp_path / "record")
    assert RunRecord.read(tmp_path / "record") == record


def test_a_message_is_one_line() -> None:
    assert message_of(report()) == "E boom"
    assert message_of(report(longrepr=None)) == "no message"
    assert message_of(report(longrepr="x" * 1000)) == "x" * MESSAGE_LIMIT + "…"
