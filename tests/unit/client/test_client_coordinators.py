"""Names are asked of their coordinators, in pieces, until one that is ready answers."""

from __future__ import annotations

from typing import Any

import pytest
from client_fakes import Patience
from coordinator_fakes import ScriptedCluster, ScriptedNode

from braidlog.client.coordinators import FIND_COORDINATOR, GROUP, TRANSACTION, Coordinators, Place
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, InvalidGroupIdError
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse


def code(answer: int) -> int:
    return answer


def test_each_name_goes_to_its_own_coordinator_in_the_order_given() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({}), 2: ScriptedNode({})})
    cluster.coordinator_ids = {"a": 1, "b": 2, "c": 1}
    asked: list[tuple[Any, list[str]]] = []

    def question(node: Any, names: list[str]) -> dict[str, int]:
        asked.append((node, names))
        return dict.fromkeys(names, 0)

    found = Coordinators(cluster, GROUP).ask(["c", "b", "a", "b"], question, code)
    assert list(found) == ["c", "b", "a"]
    assert asked == [(cluster.nodes[1], ["c", "a"]), (cluster.nodes[2], ["b"])]


def test_thousands_of_names_are_asked_in_pieces() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    sizes: list[int] = []

    def question(node: Any, names: list[str]) -> dict[str, int]:
        sizes.append(len(names))
        return dict.fromkeys(names, 0)

    names = [f"g{number}" for number in range(1200)]
    assert list(Coordinators(cluster, GROUP).ask(names, question, code)) == names
    assert sizes == [500, 500, 200]
    assert [len(request.coordinator_keys) for request in cluster.any.asked] == [500, 500, 200]


def test_a_coordinator_that_moved_or_loads_is_asked_for_again() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({}), 2: ScriptedNode({})})
    codes = iter([16, 14, 0])
    patience = Patience()
    asked: list[Any] = []

    def question(node: Any, names: list[str]) -> dict[str, int]:
        asked.append(node)
        cluster.coordinator_ids["g"] = 2
        return {"g": next(codes)}

    assert Coordinators(cluster, GROUP, patience.retry).ask(["g"], question, code) == {"g": 0}
    assert asked == [cluster.nodes[1], cluster.nodes[2], cluster.nodes[2]]
    assert len(patience.naps) == 2


def test_only_those_that_were_put_off_are_asked_again() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    answers = [{"a": 0, "b": 14}, {"b": 69}]
    asked: list[list[str]] = []

    def question(node: Any, names: list[str]) -> dict[str, int]:
        asked.append(names)
        return answers.pop(0)

    assert Coordinators(cluster, GROUP, Patience().retry).ask(["a", "b"], question, code) == {"a": 0, "b": 69}
    assert asked == [["a", "b"], ["b"]]


def test_what_stays_put_off_is_the_answer() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    patience = Patience()
    found = Coordinators(cluster, TRANSACTION, patience.retry).ask(["t"], lambda node, names: {"t": 51}, code)
    assert found == {"t": 51}
    assert patience.now >= cluster.timeout_s


def test_a_coordinator_that_comes_up_is_waited_for() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    cluster.coming_up = 3
    patience = Patience()
    assert Coordinators(cluster, GROUP, patience.retry).place_of("g") == Place(1, "broker", 9000)
    assert len(patience.naps) == 3
    cluster.coming_up = 10_000
    with pytest.raises(CoordinatorNotAvailableError, match=r"group h: its coordinator is not available"):
        Coordinators(cluster, GROUP, patience.retry).place_of("h")


def test_an_older_broker_is_asked_one_by_one() -> None:
    node = ScriptedNode({}, {FIND_COORDINATOR: 3})
    cluster = ScriptedCluster({1: node})
    found = Coordinators(cluster, TRANSACTION).ask(["a", "b"], lambda node, names: dict.fromkeys(names, 0), code)
    assert found == {"a": 0, "b": 0}
    assert [(request.key, request.key_type) for request in node.asked] == [("a", 1), ("b", 1)]


def test_a_name_that_nobody_coordinates() -> None:
    bad = FindCoordinatorResponse(coordinators=[Coordinator(key="x", error_code=24)])
    cluster = ScriptedCluster({1: ScriptedNode({FIND_COORDINATOR: lambda request: bad})})
    with pytest.raises(InvalidGroupIdError, match="group x"):
        Coordinators(cluster, GROUP).place_of("x")


def test_a_coordinator_that_metadata_does_not_know_yet_can_be_reached() -> None:
    cluster = ScriptedCluster({1: ScriptedNode({})})
    cluster.coordinator_ids["g"] = 9
    Coordinators(cluster, GROUP).place_of("g")
    assert cluster.addresses[9] == ("broker", 9000)
    assert str(Place(9, "::1", 9092)) == "[::1]:9092 (9)"
