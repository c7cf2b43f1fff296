"""A cluster as the command line sees it: nodes by id, leaders from metadata, errors as exceptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final

from braidlog.client.node import NoConnection, Node
from braidlog.client.refusals import check, refusal
from braidlog.client.retrying import Retry
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    NONE,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from braidlog.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

LIST_OFFSETS: Final = 2
METADATA: Final = 3
DEFAULT_PORT: Final = 9092

EARLIEST: Final = -2
LATEST: Final = -1

# A topic that is being created has no leader for a moment; one that a broker will not create stays unknown.
CREATION_S: Final = 3.0
_PASSING: Final = (LeaderNotAvailableError.code, UnknownTopicOrPartitionError.code)
MOVED_LEADER: Final = (
    NotLeaderOrFollowerError.code,
    LeaderNotAvailableError.code,
    UnknownTopicOrPartitionError.code,
)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; the port may be left out."""
    servers: list[tuple[str, int]] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = word.rpartition(":")
        if not colon or (word.startswith("[") and word.endswith("]")):
            servers.append((word.strip("[]"), DEFAULT_PORT))
        elif host and port.isdigit() and 0 < int(port) < 65536:
            servers.append((host.strip("[]"), int(port)))
        else:
            raise UserError(f"--bootstrap: {word!r} is not HOST:PORT")
    if not servers:
        raise UserError("no bootstrap server given; use --bootstrap HOST:PORT")
    return servers


class Cluster:
    def __init__(self, bootstrap: str, timeout_s: float = 30.0) -> None:
        self.timeout_s = timeout_s
        self._bootstrap = parse_bootstrap(bootstrap)
        self._nodes: dict[int, Node] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.controller_id = -1
        self.cluster_id = ""
        self._first = self._connect_any()

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

    def _connect_any(self) -> Node:
        """The first that answers: of the servers given, then of the brokers that these told of."""
        problems: list[str] = []
        for host, port in dict.fromkeys([*self._bootstrap, *self.addresses.values()]):
            try:
                return Node(host, port, self.timeout_s)
            except UserError as problem:
                problems.append(str(problem))
        raise NoConnection("; ".join(problems))

    # Nodes

    @property
    def any(self) -> Node:
        return self._first

    @property
    def broker_ids(self) -> list[int]:
        if not self.addresses:
            self.metadata([])
        return sorted(self.addresses)

    def node(self, broker_id: int) -> Node:
        if broker_id not in self._nodes:
            if broker_id not in self.addresses:
                self.metadata([])
            if broker_id not in self.addresses:
                raise UserError(f"there is no broker {broker_id} in this cluster ({_listing(self.addresses)})")
            host, port = self.addresses[broker_id]
            try:
                self._nodes[broker_id] = Node(host, port, self.timeout_s)
            except NoConnection as problem:
                if (host, port) in self._bootstrap:
                    raise
                raise NoConnection(
                    f"broker {broker_id} tells clients to connect to {host}:{port}, where no broker answers from here; "
                    "set its advertised.listeners to an address that clients reach (`braidlog doctor` explains)"
                ) from problem
        return self._nodes[broker_id]

    def forget(self, broker_id: int) -> None:
        """Drop a connection that failed; the next use makes a new one."""
        node = self._nodes.pop(broker_id, None)
        if node is not None:
            node.close()

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
        try:
            response = self._first.call(METADATA, request, MetadataResponse)
        except NoConnection:
            self._first.close()
            self._first = self._connect_any()
            response = self._first.call(METADATA, request, MetadataResponse)
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id or ""
        return response.topics

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic, or the error that says why not; with `create`, what auto-creation makes of it is awaited."""
        retry = Retry(min(CREATION_S, self.timeout_s))
        while True:
            (topic,) = self.metadata([name], create=create)
            if not (create and _is_coming_up(topic) and retry.again()):
                check(topic.error_code, f"topic {name}")
                return topic

    def leader_of(self, topic: MetadataResponseTopic, partition: int) -> int:
        """The broker that leads a partition."""
        for each in topic.partitions:
            if each.partition_index == partition:
                if each.leader_id < 0:
                    raise refusal(LeaderNotAvailableError.code, f"{topic.name}-{partition}")
                return each.leader_id
        raise UserError(
            f"topic {topic.name} has no partition {partition}; it has {len(topic.partitions)}, counted from 0"
        )

    # Offsets

    def offsets(self, name: str, timestamps: Mapping[int, int], *, committed: bool = False) -> dict[int, int]:
        """By partition the first offset at or after a timestamp (or EARLIEST, LATEST); -1 where there is none."""
        retry = Retry(self.timeout_s)
        while True:
            try:
                return self._offsets(self.topic(name), timestamps, committed)
            except ProtocolError as problem:
                if problem.code not in MOVED_LEADER or not retry.again():
                    raise

    def _offsets(self, topic: MetadataResponseTopic, timestamps: Mapping[int, int], committed: bool) -> dict[int, int]:
        name = topic.name or ""
        by_leader: dict[int, list[ListOffsetsPartition]] = {}
        for partition, timestamp in timestamps.items():
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            by_leader.setdefault(self.leader_of(topic, partition), []).append(asked)
        found: dict[int, int] = {}
        for leader, partitions in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[ListOffsetsTopic(name=name, partitions=partitions)],
            )
            (answer,) = self.node(leader).call(LIST_OFFSETS, request, ListOffsetsResponse).topics
            for each in answer.partitions:
                check(each.error_code, f"{name}-{each.partition_index}")
                found[each.partition_index] = each.offset
        return found


def _is_coming_up(topic: MetadataResponseTopic) -> bool:
    if topic.error_code != NONE:
        return topic.error_code in _PASSING
    return any(partition.leader_id < 0 for partition in topic.partitions)


def _listing(addresses: Mapping[int, tuple[str, int]]) -> str:
    return f"it has {', '.join(map(str, sorted(addresses)))}" if addresses else "none is known"
