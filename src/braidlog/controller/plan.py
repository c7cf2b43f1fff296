"""What a decision gives: the store operations that make it true, and what they change in the image."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.records import PartitionStateRecord, TopicRecord
from braidlog.cluster.store import Create, Operation, SetData
from braidlog.config.broker import BrokerSettings
from braidlog.core.types import BrokerId, LeaderEpoch


class Put(NamedTuple):
    """Create the node or, if it is there, replace its data; the loop looks which before it commits."""

    path: str
    data: bytes = b""


class Remove(NamedTuple):
    """Delete the node if it is there."""

    path: str


Step: TypeAlias = Operation | Put | Remove


class Plan(NamedTuple):
    """`steps` commit as one transaction, then listeners apply `delta`.

    A transaction that is too large for one request of the store is cut in the order of its steps, and a controller that
    takes over completes any beginning of it:

        created   outermost first: config, topic with its assignment, partitions, states (takeover writes missing ones)
        changed   a topic's assignment before the states of its partitions
        removed   innermost first, the mark of the deletion last
        notices   after the change that they tell of

    Only then are the nodes of deleted topics removed: a crash between the two leaves the marks that `steps` wrote, from
    which the next start knows to finish.
    """

    steps: Sequence[Step] = ()
    delta: ImageDelta = ImageDelta()


class ControllerContext(NamedTuple):
    """All that a decision may look at."""

    image: ClusterImage
    controller_epoch: int
    settings: BrokerSettings
    rng: random.Random
    new_id: Callable[[], bytes]
    # Deleted topics that are still in the store.
    unremoved: frozenset[str] = frozenset()


def initial_states(
    assignment: Sequence[tuple[int, ...]], alive: Sequence[int], controller_epoch: int
) -> tuple[PartitionInfo, ...]:
    """Partitions with the same replicas share one value."""
    states = {replicas: initial_state(replicas, alive, controller_epoch) for replicas in dict.fromkeys(assignment)}
    return tuple(states[replicas] for replicas in assignment)


def initial_state(replicas: Sequence[int], alive: Sequence[int], controller_epoch: int) -> PartitionInfo:
    """How a partition starts: the first live replica leads, all live ones are in sync, as all are empty."""
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


def with_partitions(topic: TopicImage, changed: dict[int, PartitionInfo], version: int) -> TopicImage:
    partitions = tuple(changed.get(index, each) for index, each in enumerate(topic.partitions))
    return TopicImage(topic.name, topic.topic_id, partitions, version)
