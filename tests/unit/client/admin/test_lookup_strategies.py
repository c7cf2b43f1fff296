"""Names are asked of their coordinators, in pieces, until one that is ready answers."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.lookup_strategies import CoordinatorNode, CoordinatorStrategy
from braidlog.client.admin.results import Results
from braidlog.client.broker_errors import broker_error
from braidlog.client.requests.find_coordinator import FIND_COORDINATOR, GROUP, TRANSACTION, CoordinatorType
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    ProtocolError,
)
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse
from support.admin_fakes import ScriptedCluster, ScriptedNode, at_once
from support.retry_clock import RetryClock


def ask(
    cluster: ScriptedCluster,
    names: list[str],
    question: Any,
    kind: CoordinatorType = GROUP,
    patience: RetryClock | None = None,
) -> Results[str, Any]:
    return AdminApiDriver(cluster, new_retry=(patience or RetryClock()).retry).ask(
        names, CoordinatorStrategy(kind), at_once(question)
    )


def outcome(code: int) -> ProtocolError | None:
    return broker_error(code, "it") if code else None


def test_each_name_goes_to_its_own_coordinator_in_the_order_given() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({}), 2: ScriptedNode({})})
    cluster.coordinator_ids = {"a": 1, "b": 2, "c": 1}
    asked: list[tuple[Any, list[str]]] = []

    def question(node: Any, names: list[str]) -> dict[str, None]:
        asked.append((node, names))
        return dict.fromkeys(names)

    assert list(ask(cluster, ["c", "b", "a", "b"], question)) == ["c", "b", "a"]
    assert asked == [(cluster.nodes[1], ["c", "a"]), (cluster.nodes[2], ["b"])]


def test_thousands_of_names_are_asked_in_pieces() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    sizes: list[int] = []

    def question(node: Any, names: list[str]) -> dict[str, None]:
        sizes.append(len(names))
        return dict.fromkeys(names)

    names = [f"g{number}" for number in range(1200)]
    assert list(ask(cluster, names, question)) == names
    assert sizes == [500, 500, 200]
    assert [len(request.coordinator_keys) for request in cluster.nodes[1].asked] == [500, 500, 200]


def test_a_coordinator_that_moved_or_loads_is_asked_for_again() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({}), 2: ScriptedNode({})})
    codes = iter([16, 14, 0])
    patience = RetryClock()
    asked: list[Any] = []

    def question(node: Any, names: list[str]) -> dict[str, Any]:
        asked.append(node)
        cluster.coordinator_ids["g"] = 2
        return {"g": outcome(next(codes))}

    assert ask(cluster, ["g"], question, patience=patience) == {"g": None}
    assert asked == [cluster.nodes[1], cluster.nodes[2], cluster.nodes[2]]
    assert len(patience.sleeps) == 2


def test_only_those_that_were_put_off_are_asked_again() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    answers = [{"a": outcome(0), "b": outcome(14)}, {"b": outcome(69)}]
    asked: list[list[str]] = []

    def question(node: Any, names: list[str]) -> dict[str, Any]:
        asked.append(names)
        return answers.pop(0)

    found = ask(cluster, ["a", "b"], question)
    assert found["a"] is None
    assert isinstance(found.errors["b"], GroupIdNotFoundError)
    assert asked == [["a", "b"], ["b"]]


def test_what_stays_put_off_is_the_answer() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    patience = RetryClock()
    found = ask(cluster, ["t"], lambda node, names: {"t": outcome(51)}, TRANSACTION, patience)
    assert isinstance(found.errors["t"], ConcurrentTransactionsError)
    assert patience.now >= cluster.timeout_s


def test_a_coordinator_that_comes_up_is_waited_for() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    cluster.coming_up = 3
    patience = RetryClock()
    coordinators = CoordinatorStrategy(GROUP)
    driver = AdminApiDriver(cluster, new_retry=patience.retry)
    driver.ask_one(coordinators, at_once(lambda node: None), "g")
    assert coordinators.place_of("g") == CoordinatorNode(1, "broker", 9000)
    assert len(patience.sleeps) == 3
    cluster.coming_up = 10_000
    with pytest.raises(CoordinatorNotAvailableError, match=r"group h: its coordinator is not available"):
        driver.ask_one(coordinators, at_once(lambda node: None), "h")


def test_an_older_broker_is_asked_one_by_one() -> None:
    node = ScriptedNode({}, {FIND_COORDINATOR: 3})
    cluster = ScriptedCluster({1: node})
    assert ask(cluster, ["a", "b"], lambda node, names: dict.fromkeys(names), TRANSACTION) == {"a": None, "b": None}
    assert [(request.key, request.key_type) for request in node.asked] == [("a", 1), ("b", 1)]


def test_a_name_that_nobody_coordinates() -> None:
    bad = FindCoordinatorResponse(coordinators=[Coordinator(key="x", error_code=24)])
    cluster = ScriptedCluster({1: ScriptedNode({FIND_COORDINATOR: lambda request: bad})})
    found = ask(cluster, ["x"], lambda node, names: {})
    with pytest.raises(InvalidGroupIdError, match="group x"):
        found["x"]


def test_a_coordinator_that_metadata_does_not_know_yet_can_be_reached() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    cluster.nodes[9] = ScriptedNode({})
    cluster.coordinator_ids["g"] = 9
    ask(cluster, ["g"], lambda node, names: {"g": None})
    assert cluster.learned[9] == ("broker", 9000)
    assert str(CoordinatorNode(9, "::1", 9092)) == "[::1]:9092 (9)"
