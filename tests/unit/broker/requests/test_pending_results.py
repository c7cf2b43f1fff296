"""Results that come one by one are passed on together, once."""

from __future__ import annotations

from braidlog.broker.requests.pending_results import PendingResults


def test_results_are_passed_on_when_the_last_has_come() -> None:
    done: list[dict[str, int]] = []
    results: PendingResults[str, int] = PendingResults(done.append)
    results.expect(2)
    results.all_asked()
    results.put("b", 2)
    assert done == []
    results.put("a", 1)
    assert done == [{"b": 2, "a": 1}]
    assert list(done[0]) == ["b", "a"], "in the order in which they came"


def test_results_that_come_at_once_wait_until_all_were_asked_for() -> None:
    done: list[dict[str, int]] = []
    results: PendingResults[str, int] = PendingResults(done.append)
    for key in ("a", "b"):
        results.expect(1)
        results.put(key, 1)
        assert done == []
    results.all_asked()
    assert done == [{"a": 1, "b": 1}]


def test_nothing_asked_for_is_done_at_once() -> None:
    done: list[dict[str, int]] = []
    results: PendingResults[str, int] = PendingResults(done.append)
    results.all_asked()
    assert done == [{}]
