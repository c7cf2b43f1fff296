"""What a decision gives: store operations that make it true, what they change, and what brokers are told of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.records import PartitionStateRecord, TopicRecord
from braidlog.cluster.store import Create, Operation, SetData
from braidlog.config.broker import BrokerSettings
from braidlog.controller.replicas import ReplicaState
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition


class Put(NamedTuple):
    """Create the node or, if it is there, replace its data; the shell looks which before it commits."""

    path: str
    data: bytes = b""


class Remove(NamedTuple):
    """Delete the node if it is there."""

    path: str


Step: TypeAlias = Operation | Put | Remove


class RoleChange(NamedTuple):
    """Brokers that get LeaderAndIsr for a partition; `new` are those whose replica never was online."""

    where: TopicPartition
    brokers: tuple[BrokerId, ...]
    new: tuple[BrokerId, ...] = ()


class Stop(NamedTuple):
    broker: BrokerId
    where: TopicPartition
    delete: bool


class RequestBatch(NamedTuple):
    """What goes out together: each broker gets LeaderAndIsr, UpdateMetadata, StopReplica, in this order.

    Partitions with a role change are in the UpdateMetadata, too. Values are taken from the state after the plan.
    """

    roles: Sequence[RoleChange] = ()
    metadata: Sequence[TopicPartition] = ()
    stops: Sequence[Stop] = ()
    # Send UpdateMetadata also where it names no partition: the brokers have changed.
    brokers_changed: bool = False
    # Who gets the UpdateMetadata; None is every live broker.
    metadata_to: tuple[BrokerId, ...] | None = None


class Deletion(NamedTuple):
    """A topic on its way out. It leaves the image when its deletion begins."""

    topic: TopicImage
    # False while one of its partitions is being reassigned: the topic is still served.
    begun: bool = True
    # Replicas that are not deleted yet, by partition and broker.
    replicas: Mapping[tuple[int, BrokerId], ReplicaState] = {}
    # All replicas are gone, but the store had no room for removing the nodes.
    unremoved: bool = False

    @property
    def suspended(self) -> bool:
        """Nothing goes on until a broker starts or a reassignment ends."""
        return not self.begun or ReplicaState.DELETION_INELIGIBLE in self.replicas.values()

    @property
    def finished(self) -> bool:
        """All replicas are gone, the nodes of the topic may follow."""
        return self.begun and not self.replicas


class Plan(NamedTuple):
    """`steps` are committed first; then the rest counts, and `requests` go out. None leaves things as they are.

    Steps that are too many for one request of the store are cut in their order, and a controller that takes over
    completes any beginning of them:

        created   outermost first: config, topic with its assignment, partitions, states (takeover writes missing ones)
        moved     the assignment before the states at the start of a reassignment, after them at its end
        removed   innermost first, the mark of the deletion last
        notices   after the change that they tell of
    """

    steps: Sequence[Step] = ()
    delta: ImageDelta = ImageDelta()
    requests: Sequence[RequestBatch] = ()
    # By topic; None for those whose deletion is done.
    deletions: Mapping[str, Deletion | None] | None = None
    offline_dirs: Mapping[BrokerId, frozenset[TopicPartition]] | None = None
    shutting_down: frozenset[BrokerId] | None = None


class ControllerContext(NamedTuple):
    """All that a decision may look at."""

    image: ClusterImage
    controller_epoch: int
    settings: BrokerSettings
    rng: random.Random
    new_id: Callable[[], bytes]
    deletions: Mapping[str, Deletion] = {}
    # Replicas in failed data directories of live brokers.
    offline_dirs: Mapping[BrokerId, frozenset[TopicPartition]] = {}
    # Brokers that asked for a controlled shutdown: still there, but not to lead.
    shutting_down: frozenset[BrokerId] = frozenset()
    # Whether a topic whose name is about to become free may be waited for.
    patient: bool = True
    # Given a broker's entity and its new overrides, raises InvalidRequestError where they could not be applied.
    check_broker_overrides: Callable[[str, Mapping[str, str]], None] | None = None

    def online(self, broker: BrokerId, where: TopicPartition) -> bool:
        """Whether the replica's broker and data directory are there."""
        return broker in self.image.brokers and not (
            self.offline_dirs and where in self.offline_dirs.get(broker, frozenset())
        )

    def online_replicas(self, info: PartitionInfo, where: TopicPartition) -> tuple[BrokerId, ...]:
        return tuple(each for each in info.replicas if self.online(each, where))

    def after(self, plan: Plan) -> ControllerContext:
        """The context that the next decision sees once the plan is committed."""
        deletions = self.deletions
        if plan.deletions is not None:
            merged = {**deletions, **plan.deletions}
            deletions = {name: deletion for name, deletion in merged.items() if deletion is not None}
        return self._replace(
            image=self.image if plan.delta.empty else self.image.apply(plan.delta),
            deletions=deletions,
            offline_dirs=self.offline_dirs if plan.offline_dirs is None else plan.offline_dirs,
            shutting_down=self.shutting_down if plan.shutting_down is None else plan.shutting_down,
        )


def initial_states(
    assignment: Sequence[tuple[int, ...]], alive: Sequence[int], controller_epoch: int
) -> tuple[PartitionInfo, ...]:
    """Partitions with the same replicas share one value."""
    states = {replicas: initial_state(replicas, alive, controller_epoch) for replicas in dict.fromkeys(assignment)}
    return tuple(states[replicas] for replicas in assignment)


def initial_state(replicas: Sequence[int], alive: Sequence[int], controller_epoch: int) -> PartitionInfo:
    """How a partition starts: the first live replica leads, all live ones are in sync, as all are empty.

    Where none is among `alive`, all are taken for it.
    """
    everyone = tuple(BrokerId(each) for each in replicas)
    live = tuple(each for each in everyone if each in alive) or everyone
    return PartitionInfo(
        leader=live[0],
        leader_epoch=LeaderEpoch(0),
        isr=live,
        replicas=everyone,
        controller_epoch=controller_epoch,
        partition_epoch=0,
    )


def state_data(partition: PartitionInfo) -> bytes:
    return records.encode_partition_state(
        PartitionStateRecord(
            partition.leader,
            partition.leader_epoch,
            partition.isr,
            partition.controller_epoch,
            partition.leader_recovery_state,
        )
    )


def topic_data(topic: TopicImage) -> bytes:
    return records.encode_topic(
        TopicRecord(
            topic.topic_id,
            tuple(partition.replicas for partition in topic.partitions),
            {index: each.adding for index, each in enumerate(topic.partitions) if each.adding},
            {index: each.removing for index, each in enumerate(topic.partitions) if each.removing},
        )
    )


def create_partitions(topic: TopicImage, first: int) -> list[Step]:
    """The nodes of the partitions from `first` on."""
    steps: list[Step] = []
    encoded: dict[PartitionInfo, bytes] = {}
    parent = paths.partitions(topic.name)
    for index in range(first, len(topic.partitions)):
        partition = topic.partitions[index]
        data = encoded.get(partition)
        if data is None:
            data = encoded[partition] = state_data(partition)
        path = f"{parent}/{index}"
        steps.append(Create(path))
        steps.append(Create(path + "/state", data))
    return steps


def write_state(topic: str, index: int, before: PartitionInfo, after: PartitionInfo) -> list[Step]:
    """Replace a partition's state; refused if it was written since it was read."""
    path = paths.partition_state(topic, index)
    if before.partition_epoch == -1:
        return [Put(paths.partitions(topic)), Put(paths.partition(topic, index)), Create(path, state_data(after))]
    return [SetData(path, state_data(after), before.partition_epoch)]


def with_partitions(topic: TopicImage, changed: Mapping[int, PartitionInfo], version: int) -> TopicImage:
    partitions = tuple(changed.get(index, each) for index, each in enumerate(topic.partitions))
    return TopicImage(topic.name, topic.topic_id, partitions, version)
