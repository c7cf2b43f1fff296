"""Brokers whose answers a test writes down by API."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.requests.find_coordinator import FIND_COORDINATOR
from braidlog.client.requests.metadata import METADATA
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.wire.apis import APIS, encode_request
from braidlog.wire.errors import EncodeError
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.metadata import MetadataResponsePartition, MetadataResponseTopic

Answer = Callable[[Any], Any]


class ScriptedNode:
    """Answers a request by the function for its API; `versions` are those it does not speak the newest of."""

    def __init__(self, answers: dict[int, Answer], versions: dict[int, int] | None = None) -> None:
        self.answers = answers
        self.versions = versions or {}
        self.asked: list[Any] = []
        self.address = "broker:9092"

    def offers(self, api_key: int) -> bool:
        return api_key in self.answers

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        newest = self.versions.get(api_key, APIS[api_key].max_version)
        return newest if at_most is None else min(newest, at_most)

    def call(self, api_key: int, request: Any, answer: Any, *, at_most: int | None = None) -> Any:
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

    def run(self, work: Callable[[Any, float], Coroutine[Any, Any, Any]]) -> Any:
        """Drives `work` by hand: what it awaits here is never put off."""
        try:
            work(_AsyncNode(self), 1.0).send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("a scripted node answers at once")


class _AsyncNode:
    """A scripted node as the network layer sees a connection."""

    def __init__(self, node: ScriptedNode) -> None:
        self.version_for = node.version_for
        self._node = node

    async def call(
        self, api_key: int, request: Any, answer: Any, *, at_most: int | None = None, timeout_s: float
    ) -> Any:
        return self._node.call(api_key, request, answer, at_most=at_most)


class ScriptedCluster(ClusterConnection):
    """Nodes by id; topics with the leader of each partition."""

    def __init__(self, nodes: dict[int, ScriptedNode], topics: dict[str, list[int]] | None = None) -> None:
        self.timeout_s = 1.0
        self.deadline = None
        self.nodes = nodes
        self.topics = topics or {}
        # By topic, where it is not the leader alone.
        self.replicas: dict[str, list[int]] = {}
        self.addresses = {broker_id: ("broker", 9000 + broker_id) for broker_id in nodes}
        self.coordinator_ids: dict[str, int] = {}
        self.coming_up = 0
        self.controller_id = min(nodes)
        self.forgotten: list[int] = []
        self.refreshed = 0
        for node in nodes.values():
            node.answers.setdefault(FIND_COORDINATOR, self._find)
            node.answers.setdefault(METADATA, lambda request: None)

    @property
    def any(self) -> Any:
        return self.nodes[min(self.nodes)]

    def node(self, broker_id: int) -> Any:
        return self.nodes[broker_id]

    def forget(self, broker_id: int) -> None:
        self.forgotten.append(broker_id)

    def close(self) -> None:
        self.nodes = {}

    def metadata(self, topics: Any, *, create: bool = False) -> list[MetadataResponseTopic]:
        self.refreshed += 1
        return [self._topic(name) for name in (self.topics if topics is None else topics)]

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=leader, replica_nodes=self.replicas.get(name, [leader])
            )
            for index, leader in enumerate(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

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
