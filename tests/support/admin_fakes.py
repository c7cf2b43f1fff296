"""Brokers whose answers a test writes down by API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import MappingProxyType
from typing import Any, TypeVar

from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.cluster_view import EMPTY, BrokerView, ClusterView, PartitionView, TopicView
from braidlog.client.requests.find_coordinator import FIND_COORDINATOR
from braidlog.client.requests.metadata import METADATA
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.wire.apis import APIS, encode_request
from braidlog.wire.errors import EncodeError
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

Answer = Callable[[Any], Any]
T = TypeVar("T")


class ScriptedNode:
    """Answers a request by the function for its API; `versions` are those it does not speak the newest of."""

    def __init__(self, answers: dict[int, Answer], versions: dict[int, int] | None = None) -> None:
        self.answers = answers
        self.versions = versions or {}
        self.asked: list[Any] = []
        self.address = "broker:9092"
        # The call that it is asked in.
        self.cluster: ScriptedCall | None = None

    def offers(self, api_key: int) -> bool:
        return api_key in self.answers

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        newest = self.versions.get(api_key, APIS[api_key].max_version)
        return newest if at_most is None else min(newest, at_most)

    async def call(
        self, api_key: int, request: Any, answer: Any, *, at_most: int | None = None, timeout_s: float | None = None
    ) -> Any:
        self.asked.append(request)
        if api_key not in self.answers:
            raise UnsupportedVersionError(f"the broker at {self.address} does not offer {APIS[api_key].name}")
        try:
            encode_request(api_key, self.version_for(api_key, at_most), 1, "test", request)
        except EncodeError as problem:
            raise UnsupportedVersionError(f"the broker at {self.address} is too old: {problem}") from problem
        answered = self.answers[api_key](request)
        if isinstance(answered, Exception):
            raise answered
        assert isinstance(answered, answer)
        return answered


class ScriptedCall(ClusterCall):
    """A call on a scripted cluster; `deadline` is what it was made with."""

    def __init__(self, cluster: ScriptedCluster, deadline: float | None) -> None:
        self.deadline = deadline
        self.turn = asyncio.Lock()
        self._scripted = cluster

    def time_left_s(self) -> float:
        return self._scripted.timeout_s

    @property
    def view(self) -> ClusterView:
        return self._scripted.view

    async def any(self) -> Any:
        return self._scripted.connected(min(self._scripted.nodes), self)

    async def node(self, broker_id: int) -> Any:
        return self._scripted.connected(broker_id, self)

    def learn(self, broker_id: int, address: tuple[str, int]) -> None:
        self._scripted.learned[broker_id] = address

    async def metadata(self, topics: Any, *, create: bool = False) -> list[TopicView]:
        return self._scripted.metadata(topics)


class ScriptedCluster(ClusterConnection):
    """Nodes by id; topics with the leader of each partition. Nothing that is awaited here is ever put off."""

    def __init__(self, nodes: dict[int, ScriptedNode], topics: dict[str, list[int]] | None = None) -> None:
        self.timeout_s = 1.0
        self.nodes = nodes
        self.topics = topics or {}
        # By topic, where it is not the leader alone.
        self.replicas: dict[str, list[int]] = {}
        self.coordinator_ids: dict[str, int] = {}
        self.coming_up = 0
        brokers = {broker_id: BrokerView(broker_id, "broker", 9000 + broker_id) for broker_id in nodes}
        self.view = EMPTY._replace(brokers=MappingProxyType(brokers), controller_id=min(nodes))
        self.refreshed = 0
        # Coordinators, by id where they are.
        self.learned: dict[int, tuple[str, int]] = {}
        for node in nodes.values():
            node.answers.setdefault(FIND_COORDINATOR, self._find)
            node.answers.setdefault(METADATA, lambda request: None)

    def run(self, work: Callable[[ClusterCall], Coroutine[Any, Any, T]], deadline: float | None = None) -> T:
        try:
            work(ScriptedCall(self, deadline)).send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError("a scripted cluster answers at once")

    def connected(self, broker_id: int, call: ScriptedCall) -> ScriptedNode:
        node = self.nodes[broker_id]
        node.cluster = call
        return node

    def close(self) -> None:
        self.nodes = {}

    def metadata(self, topics: Any) -> list[TopicView]:
        self.refreshed += 1
        return [self._topic(name) for name in (self.topics if topics is None else topics)]

    def _topic(self, name: str) -> TopicView:
        if name not in self.topics:
            return TopicView(name, bytes(16), 3, False, ())
        partitions = (
            PartitionView(index, leader, -1, tuple(self.replicas.get(name, [leader])), (), ())
            for index, leader in enumerate(self.topics[name])
        )
        return TopicView(name, bytes(16), 0, False, tuple(partitions))

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if self.coming_up > 0:
            self.coming_up -= 1
            error = 15
        else:
            error = 0
        found = [
            Coordinator(key=key, node_id=self._coordinator_of(key), host="broker", port=9000, error_code=error)
            for key in request.coordinator_keys or [request.key]
        ]
        if request.coordinator_keys:
            return FindCoordinatorResponse(coordinators=found)
        (single,) = found
        return FindCoordinatorResponse(
            node_id=single.node_id, host=single.host, port=single.port, error_code=single.error_code
        )

    def _coordinator_of(self, key: str) -> int:
        return self.coordinator_ids.get(key, min(self.nodes))


def asking(answers: dict[int, Any], versions: dict[int, int] | None = None) -> tuple[Admin, ScriptedNode]:
    """An Admin of one broker; by API its answer, or a function of the request."""
    node = ScriptedNode({key: _answering(answer) for key, answer in answers.items()}, versions)
    return admin_over(ScriptedCluster({1: node})), node


def _answering(answer: Any) -> Answer:
    return answer if callable(answer) else lambda request: answer


def at_once(question: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """A question that needs no request."""

    async def ask(*arguments: Any) -> T:
        return question(*arguments)

    return ask
