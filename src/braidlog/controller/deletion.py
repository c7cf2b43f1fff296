"""Decides how topics go.

mark       /admin/delete_topics/T: from here on the deletion is completed, whoever is the controller
begin      the topic leaves the metadata (leader -2), every replica stops, then deletes its log
suspended  a replica's broker is dead or could not delete, or a partition is being reassigned
finished   every replica has deleted its log: nodes of the topic, its config and its mark are removed
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from braidlog.cluster import paths
from braidlog.cluster.image import ImageDelta, TopicImage, topic_entity
from braidlog.controller.plan import ControllerContext, Deletion, Plan, Put, Remove, RequestBatch, Step, Stop
from braidlog.controller.replicas import ReplicaState, move
from braidlog.core.types import BrokerId, TopicPartition

# Nodes of deleted topics in one transaction.
_REMOVED_AT_A_TIME: Final = 500

_OFFLINE, _STARTED, _SUCCESSFUL, _INELIGIBLE = (
    ReplicaState.OFFLINE,
    ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL,
    ReplicaState.DELETION_INELIGIBLE,
)


class DeletionInProgress(Exception):
    """The name that is asked for becomes free as soon as this topic's deletion is done: worth waiting for."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


def begin(context: ControllerContext, topics: Sequence[TopicImage], *, mark: bool) -> Plan:
    """`mark` writes the marks; without it they are there already."""
    marks = [Put(paths.deleted_topic(topic.name)) for topic in topics] if mark else []
    begun = [topic for topic in topics if not topic.reassigning]
    deletions: dict[str, Deletion] = {topic.name: Deletion(topic, begun=False) for topic in topics}
    stops: list[Stop] = []
    for topic in begun:
        deletions[topic.name] = _told_to_delete(context, Deletion(topic), stops)
    gone = [topic for topic in begun if context.image.topic(topic.name) is not None]
    delta = ImageDelta(topics_deleted=tuple(gone), configs_deleted=tuple(topic_entity(topic.name) for topic in gone))
    requests = (RequestBatch(metadata=_partitions(begun), stops=stops),) if begun else ()
    return Plan(marks, delta, requests, deletions=deletions)


def _partitions(topics: Iterable[TopicImage]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in range(len(topic.partitions))]


def _told_to_delete(context: ControllerContext, deletion: Deletion, stops: list[Stop]) -> Deletion:
    """Every replica whose broker is there is told to stop, then to delete; the others wait for theirs.

    Also one whose log is offline: of a data directory that failed its broker refuses to delete it, of one that was
    replaced nothing is left to delete.
    """
    topic = deletion.topic
    replicas: dict[tuple[int, BrokerId], ReplicaState] = {}
    for index, info in enumerate(topic.partitions):
        where = TopicPartition(topic.name, index)
        for broker in info.replicas:
            if broker in context.image.brokers:
                replicas[index, broker] = move(where, broker, _OFFLINE, _STARTED)
                stops.append(Stop(broker, where, delete=False))
                stops.append(Stop(broker, where, delete=True))
            else:
                replicas[index, broker] = move(where, broker, _OFFLINE, _INELIGIBLE)
    return deletion._replace(begun=True, replicas=replicas)


def answered(context: ControllerContext, broker: BrokerId, answers: Mapping[TopicPartition, int]) -> Plan:
    """What a broker said to StopReplica with delete: an error code for each partition.

    A replica that is gone is offline no more: the next one of that name has a log of its own.
    """
    offline = context.offline_dirs.get(broker, frozenset())
    left = offline - {where for where, error in answers.items() if not error}
    offline_dirs = None if left == offline else {**context.offline_dirs, broker: left}
    changed: dict[str, dict[tuple[int, BrokerId], ReplicaState]] = {}
    for where, error in answers.items():
        deletion = context.deletions.get(where.topic)
        if deletion is None or deletion.replicas.get((where.partition, broker)) is not _STARTED:
            continue
        replicas = changed.get(where.topic)
        if replicas is None:
            replicas = changed[where.topic] = dict(deletion.replicas)
        if error:
            replicas[where.partition, broker] = move(where, broker, _STARTED, _INELIGIBLE)
        else:
            move(where, broker, _STARTED, _SUCCESSFUL, ReplicaState.NON_EXISTENT)
            del replicas[where.partition, broker]
    deletions = {name: context.deletions[name]._replace(replicas=replicas) for name, replicas in changed.items()}
    return Plan(deletions=deletions or None, offline_dirs=offline_dirs)


def suspended(context: ControllerContext, lost: Callable[[TopicPartition, BrokerId], bool]) -> dict[str, Deletion]:
    """Deletions that wait for replicas which cannot answer any more."""
    changed: dict[str, Deletion] = {}
    for name, deletion in context.deletions.items():
        replicas = dict(deletion.replicas)
        for (index, broker), state in deletion.replicas.items():
            where = TopicPartition(name, index)
            if state is _STARTED and lost(where, broker):
                replicas[index, broker] = move(where, broker, state, _INELIGIBLE)
        if replicas != deletion.replicas:
            changed[name] = deletion._replace(replicas=replicas)
    return changed


def announced(context: ControllerContext, started: Sequence[BrokerId]) -> Plan:
    """Brokers that started may still know topics that are on their way out: their last registration was not told."""
    begun = [deletion.topic for deletion in context.deletions.values() if deletion.begun]
    batch = RequestBatch(metadata=_partitions(begun), metadata_to=tuple(started))
    return Plan(requests=(batch,)) if begun else Plan()


def resume(context: ControllerContext) -> Plan:
    """Go on with what was suspended and need not be any more: a broker started, or a reassignment ended."""
    waiting = [
        topic
        for name, deletion in context.deletions.items()
        if not deletion.begun and (topic := context.image.topic(name)) is not None
    ]
    ready = [topic for topic in waiting if not topic.reassigning]
    begun = begin(context, ready, mark=False) if ready else Plan()
    deletions: dict[str, Deletion | None] = dict(begun.deletions or {})
    stops: list[Stop] = []
    for name, deletion in context.deletions.items():
        retried = {
            (index, broker): move(TopicPartition(name, index), broker, state, _OFFLINE, _STARTED)
            for (index, broker), state in deletion.replicas.items()
            if state is _INELIGIBLE and context.online(broker, TopicPartition(name, index))
        }
        for index, broker in retried:
            stops.append(Stop(broker, TopicPartition(name, index), delete=False))
            stops.append(Stop(broker, TopicPartition(name, index), delete=True))
        if retried:
            deletions[name] = deletion._replace(replicas={**deletion.replicas, **retried})
    requests = [*begun.requests, RequestBatch(stops=stops)] if stops else begun.requests
    return Plan((), begun.delta, requests, deletions=deletions)


def forget_topics(topics: Iterable[TopicImage]) -> Iterator[list[Step]]:
    """Every node of these topics, leaves first, in transactions small enough to hold no one up.

    A topic's own node goes together with its deletion mark: a start that finds the mark finds what is left of it,
    and a mark without a topic would delete the next one of that name.
    """
    steps: list[Step] = []
    for topic in topics:
        for index in range(len(topic.partitions)):
            if len(steps) >= _REMOVED_AT_A_TIME:
                yield steps
                steps = []
            steps.append(Remove(paths.partition_state(topic.name, index)))
            steps.append(Remove(paths.partition(topic.name, index)))
        if len(steps) >= _REMOVED_AT_A_TIME:
            yield steps
            steps = []
        steps.append(Remove(paths.partitions(topic.name)))
        steps.append(Remove(paths.topic(topic.name)))
        steps.append(Remove(paths.config(topic_entity(topic.name))))
        steps.append(Remove(paths.deleted_topic(topic.name)))
    if steps:
        yield steps
