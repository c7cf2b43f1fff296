"""Questions go where the answer is, and again after an election or a lost connection, until the deadline."""

from __future__ import annotations

import time
from typing import Any

import pytest

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.lookup_strategies import (
    ANY,
    AnyBrokerStrategy,
    BrokerStrategy,
    ControllerStrategy,
    PartitionLeaderStrategy,
)
from braidlog.client.errors import ClosedError, NoConnection
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    InvalidTopicError,
    NotControllerError,
    NotLeaderOrFollowerError,
    UnknownServerError,
)
from braidlog.core.types import TopicPartition
from support.admin_fakes import ScriptedCluster, ScriptedNode, at_once
from support.retry_clock import RetryClock


class Election:
    """Two brokers; `steps` are what the question meets, one by one."""

    def __init__(self, *steps: Any) -> None:
        self.cluster = ScriptedCluster({1: ScriptedNode({}), 2: ScriptedNode({})}, {"orders": [1, 2]})
        self.patience = RetryClock()
        self.steps = list(steps)
        self.asked: list[int] = []
        self.driver = AdminApiDriver(self.cluster, 5.0, self.patience.retry)

    async def question(self, node: Any, items: list[Any]) -> dict[Any, Any]:
        self.asked.append(next(key for key, value in self.cluster.nodes.items() if value is node))
        step = self.steps.pop(0) if self.steps else None
        if isinstance(step, Exception):
            raise step
        return dict.fromkeys(items, step) if not isinstance(step, dict) else step


def test_the_controller_is_looked_for_again_when_it_moved() -> None:
    election = Election({"a": NotControllerError()}, {"a": "done"})
    refresh = election.cluster.metadata

    def moved(topics: Any) -> Any:
        election.cluster.view = election.cluster.view._replace(controller_id=2)
        return refresh(topics)

    election.cluster.metadata = moved  # type: ignore[method-assign]
    assert election.driver.ask(["a"], ControllerStrategy(), election.question) == {"a": "done"}
    assert election.asked == [1, 2]


def test_a_refusal_of_the_whole_request_is_raised_unless_it_passes() -> None:
    election = Election(NotControllerError(), "done")

    async def question(node: Any) -> Any:
        return (await election.question(node, ["x"]))["x"]

    assert election.driver.ask_one(ControllerStrategy(), question) == "done"
    election = Election(ClusterAuthorizationFailedError("no"))
    with pytest.raises(ClusterAuthorizationFailedError):
        election.driver.ask(["a"], ControllerStrategy(), election.question)


def test_a_lost_connection_is_made_again() -> None:
    election = Election(NoConnection("away"), "done")
    assert election.driver.ask([2], BrokerStrategy(lambda each: each), election.question) == {2: "done"}
    assert election.cluster.refreshed == 1


def test_a_cluster_that_stays_away_is_the_whole_calls_error() -> None:
    election = Election(*[NoConnection(f"away {number}") for number in range(1000)])
    with pytest.raises(NoConnection, match="away"):
        election.driver.ask(["a", "b"], AnyBrokerStrategy(), election.question)
    assert 5.0 <= election.patience.now < 7.0


def test_one_broker_that_stays_away_is_its_items_error() -> None:
    election = Election()

    async def question(node: Any, items: list[int]) -> dict[int, str]:
        if node is election.cluster.nodes[2]:
            raise NoConnection("broker 2 is away")
        return dict.fromkeys(items, "here")

    found = election.driver.ask([1, 2, 9], BrokerStrategy(lambda each: each), question)
    assert found[1] == "here"
    assert isinstance(found.errors[2], NoConnection)
    assert isinstance(found.errors[9], UserError)
    assert "there is no broker 9 in this cluster; it has 1, 2" in str(found.errors[9])


def test_a_broker_that_holds_replicas_and_is_not_up_is_unreachable() -> None:
    election = Election()
    election.cluster.replicas = {"orders": [1, 3]}
    found = election.driver.ask([3], BrokerStrategy(lambda each: each), election.question)
    assert "broker 3 is unreachable" in str(found.errors[3])
    assert "(up: 1, 2)" in str(found.errors[3])


def test_leaders_are_asked_for_theirs_and_followed() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    election = Election()
    answers = iter([{first: NotLeaderOrFollowerError()}, {second: "b"}, {first: "a"}])

    async def question(node: Any, items: list[TopicPartition]) -> Any:
        election.asked.append(next(key for key, value in election.cluster.nodes.items() if value is node))
        election.cluster.topics["orders"] = [2, 2]
        return next(answers)

    assert election.driver.ask([first, second], PartitionLeaderStrategy(), question) == {first: "a", second: "b"}
    assert election.asked == [1, 2, 2]


def test_an_answer_that_leaves_something_out_is_no_success() -> None:
    election = Election({"a": 1})
    found = election.driver.ask(["a", "b"], AnyBrokerStrategy(), election.question)
    assert found["a"] == 1
    assert isinstance(found.errors["b"], UnknownServerError)
    assert "says nothing about it" in str(found.errors["b"])


def test_what_does_not_pass_is_not_asked_again() -> None:
    election = Election({"a": InvalidTopicError()})
    assert list(election.driver.ask(["a"], ControllerStrategy(), election.question).errors) == ["a"]
    assert election.patience.sleeps == []
    assert election.driver.ask([], ControllerStrategy(), election.question) == {}
    assert len(election.asked) == 1


def test_requests_know_the_deadline_of_the_call() -> None:
    election = Election()
    seen: list[float | None] = []

    async def question(node: Any) -> None:
        seen.append(node.cluster.deadline)

    before = time.monotonic()
    election.driver.within(3.0).ask_one(AnyBrokerStrategy(), question)
    assert seen[0] is not None
    assert before + 3.0 <= seen[0] <= time.monotonic() + 3.0


def test_connecting_waits_for_the_first_call() -> None:
    connected: list[ScriptedCluster] = []

    def connect() -> ScriptedCluster:
        connected.append(ScriptedCluster({1: ScriptedNode({})}))
        return connected[-1]

    driver = AdminApiDriver(connect, 5.0, RetryClock().retry)
    assert not connected
    done = at_once(lambda node: "done")
    assert driver.ask_one(BrokerStrategy(lambda _: ANY), done) == "done"
    assert driver.within(1.0).ask_one(AnyBrokerStrategy(), done) == "done"
    assert len(connected) == 1
    driver.close()
    with pytest.raises(ClosedError, match="make a new one"):
        driver.ask_one(AnyBrokerStrategy(), done)
    with pytest.raises(ClosedError):
        driver.within(1.0).ask_one(AnyBrokerStrategy(), done)
