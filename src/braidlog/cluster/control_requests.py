"""What a controller asks of a broker: LeaderAndIsr, UpdateMetadata and StopReplica as values, however they travel.

A controller reaches its own broker by a call and the others over the wire; both ways carry these values. A broker
obeys a controller epoch only until it has seen a newer one, and a request only if it was meant for its own
registration (`broker_epoch`). For one change the requests come in the order LeaderAndIsr, UpdateMetadata,
StopReplica: a broker has the log of a partition before clients can hear of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from braidlog.cluster.image import BrokerInfo, PartitionInfo
from braidlog.core.types import BrokerId, TopicPartition

# The leader that UpdateMetadata names for the partitions of a topic that is being deleted.
LEADER_DURING_DELETE: Final = BrokerId(-2)
# A broker epoch that passes every check: the sender does not know the receiver's registration.
ANY_BROKER_EPOCH: Final = -1


class LeaderAndIsrPartition(NamedTuple):
    """The role of the receiver follows from `info`: leader, follower, or none if it is not among the replicas.

    `is_new` is true until the replica has been online once: where a data directory is offline, only a new replica may
    get an empty log, as the log of an old one may lie in that directory.
    """

    topic: str
    topic_id: bytes
    partition: int
    info: PartitionInfo
    is_new: bool = False


class LeaderAndIsr(NamedTuple):
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[LeaderAndIsrPartition]
    # The live leaders of these partitions.
    leaders: Mapping[BrokerId, BrokerInfo] = {}


class MetadataPartition(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    info: PartitionInfo


class UpdateMetadata(NamedTuple):
    """Replaces what the receiver knows of the live brokers and of the named partitions; others stay as they are."""

    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    brokers: Mapping[BrokerId, BrokerInfo]
    partitions: Sequence[MetadataPartition] = ()


class StopReplicaPartition(NamedTuple):
    topic: str
    partition: int
    # The epoch of the partition's state, or EPOCH_DURING_DELETE.
    leader_epoch: int
    delete: bool


# The replica goes whatever the receiver's leader epoch is: its topic is being deleted.
EPOCH_DURING_DELETE: Final = -2


class StopReplica(NamedTuple):
    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[StopReplicaPartition]


ControlRequest: TypeAlias = LeaderAndIsr | UpdateMetadata | StopReplica


class ControlResponse(NamedTuple):
    """Error codes: of the request as a whole, and of each of its partitions (none for UpdateMetadata)."""

    error: int
    partitions: Mapping[TopicPartition, int] = {}


class ControlChannel(Protocol):
    """The way to one registration of one broker. The caller sends one request at a time."""

    async def send(self, request: ControlRequest) -> ControlResponse:
        """Raises `net.outbound.errors.ClientError` when there is no response: the caller sends it again."""
        ...

    async def reach(self) -> None:
        """Be connected, with nothing to send. Raises `net.outbound.errors.ClientError` where that fails."""
        ...

    def when_broken(self, callback: Callable[[], None]) -> None:
        """Called each time that a connection breaks."""
        ...

    async def close(self) -> None: ...


class ConnectToBroker(Protocol):
    def __call__(self, broker: BrokerInfo) -> ControlChannel: ...
