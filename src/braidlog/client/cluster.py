"""A cluster as the command line sees it: nodes by id, leaders from metadata, errors as exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TypeVar

from braidlog.client.node import Node
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, LeaderNotAvailableError, from_code
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from braidlog.wire.message import Message

Response = TypeVar("Response", bound=Message)

METADATA = 3
DEFAULT_PORT = 9092


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; the port may be left out."""
    servers: list[tuple[str, int]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = word.rpartition(":")
        if not colon:
            servers.append((word, DEFAULT_PORT))
        elif port.isdigit():
            servers.append((host.strip("[]"), int(port)))
        else:
            raise UserError(f"{word!r} is not HOST:PORT")
    if not servers:
        raise UserError("no bootstrap server given; use --bootstrap HOST:PORT")
    return servers


class Cluster:
    def __init__(self, bootstrap: str, timeout_s: float = 30.0) -> None:
        self._timeout_s = timeout_s
        self._nodes: dict[int, Node] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self.controller_id = -1
        self.cluster_id = ""
        self._first = self._connect_any(parse_bootstrap(bootstrap))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._first.close()
        for node in self._nodes.values():
            node.close()

    def _connect_any(self, servers: list[tuple[str, int]]) -> Node:
        problems: list[str] = []
        for host, port in servers:
            try:
                return Node(host, port, self._timeout_s)
            except UserError as problem:
                problems.append(str(problem))
        raise UserError("; ".join(problems))

    # Nodes

    @property
    def any(self) -> Node:
        return self._first

    @property
    def broker_ids(self) -> list[int]:
        if not self._addresses:
            self.metadata([])
        return sorted(self._addresses)

    def node(self, broker_id: int) -> Node:
        if broker_id not in self._nodes:
            if broker_id not in self._addresses:
                self.metadata([])
            if broker_id not in self._addresses:
                raise UserError(f"there is no broker {broker_id} in this cluster ({_listing(self._addresses)})")
            host, port = self._addresses[broker_id]
            self._nodes[broker_id] = Node(host, port, self._timeout_s)
        return self._nodes[broker_id]

    @property
    def controller(self) -> Node:
        if self.controller_id < 0:
            self.metadata([])
        return self.node(self.controller_id) if self.controller_id >= 0 else self._first

    # Metadata

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Describe topics (None: all); refreshes what is known of the brokers."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        response = self._first.call(METADATA, request, MetadataResponse)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id or ""
        return response.topics

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic, or the error that says why not."""
        (topic,) = self.metadata([name], create=create)
        check(topic.error_code, f"topic {name}")
        return topic

    def leader_of(self, topic: MetadataResponseTopic, partition: int) -> Node:
        for each in topic.partitions:
            if each.partition_index == partition:
                if each.leader_id < 0:
                    raise LeaderNotAvailableError(f"{topic.name}-{partition} has no leader now")
                return self.node(each.leader_id)
        raise UserError(f"topic {topic.name} has no partition {partition}; it has {len(topic.partitions)}")


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raise the protocol's error, told with what it was about."""
    if error_code != NONE:
        error = from_code(error_code)
        told = f"{what}: {message}" if message else what
        raise type(error)(told)


def _listing(addresses: dict[int, tuple[str, int]]) -> str:
    return ", ".join(map(str, sorted(addresses))) or "none is known"
