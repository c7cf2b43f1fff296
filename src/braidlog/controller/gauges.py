"""What the controller counts, under Kafka's names: the gauges are zero on a broker that is not the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from braidlog.cluster.image import ClusterImage, PartitionInfo
from braidlog.controller.plan import ControllerContext
from braidlog.controller.replicas import ReplicaState
from braidlog.core.types import TopicPartition
from braidlog.metrics import Histogram


class ControllerState(IntEnum):
    """Kafka's numbers for what the controller is busy with."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    UPDATE_FEATURES = 17


# What Kafka calls the time spent in each, in `<name>RateAndTimeMs`: the first has kept its name from before states.
STATE_NAMES: Final = {
    ControllerState.BROKER_CHANGE: "LeaderElection",
    ControllerState.CONTROLLER_CHANGE: "ControllerChange",
    ControllerState.TOPIC_CHANGE: "TopicChange",
    ControllerState.TOPIC_DELETION: "TopicDeletion",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignment",
    ControllerState.AUTO_LEADER_BALANCE: "AutoLeaderBalance",
    ControllerState.MANUAL_LEADER_BALANCE: "ManualLeaderBalance",
    ControllerState.CONTROLLED_SHUTDOWN: "ControlledShutdown",
    ControllerState.ISR_CHANGE: "IsrChange",
    ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED: "LeaderAndIsrResponseReceived",
    ControllerState.LOG_DIR_CHANGE: "LogDirChange",
    ControllerState.CONTROLLER_SHUTDOWN: "ControllerShutdown",
    ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE: "UncleanLeaderElectionEnable",
    ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: "TopicUncleanLeaderElectionEnable",
}


class ControllerStats:
    """What this broker has done as controller, in all its terms."""

    def __init__(self) -> None:
        self.elections = 0
        # Whose new leader was not in sync: acknowledged records may be lost.
        self.unclean_elections = 0
        # Milliseconds that events waited, and that the work took by what it was.
        self.queue_times = Histogram()
        self.times = {state: Histogram() for state in STATE_NAMES}

    def worked(self, state: ControllerState, seconds: float) -> None:
        if state in self.times:
            self.times[state].record(seconds * 1000)

    def elected(self, before: ClusterImage, after: ClusterImage, partitions: Sequence[TopicPartition]) -> None:
        """Of partitions whose replicas are told of a role: count new leaders. New partitions are no elections."""
        for where in partitions:
            was, now = _partition(before, where), _partition(after, where)
            if was is None or now is None or was.partition_epoch < 0:
                continue
            if now.leader < 0 or now.leader == was.leader:
                continue
            self.elections += 1
            if now.leader not in was.isr:
                self.unclean_elections += 1


def _partition(image: ClusterImage, where: TopicPartition) -> PartitionInfo | None:
    topic = image.topics.get(where.topic)
    return topic.partitions[where.partition] if topic is not None and where.partition < len(topic.partitions) else None


class ControllerGauges:
    """Read when they are asked for, from what the controller knows at that moment."""

    def __init__(self, context: Callable[[], ControllerContext | None], state: Callable[[], ControllerState]) -> None:
        """`context` is None on a broker that is not the controller."""
        self._context = context
        self._state = state

    @property
    def active_controller_count(self) -> int:
        return 0 if self._context() is None else 1

    @property
    def controller_state(self) -> int:
        return 0 if self._context() is None else int(self._state())

    @property
    def active_broker_count(self) -> int:
        context = self._context()
        return 0 if context is None else len(context.image.brokers)

    @property
    def offline_partitions_count(self) -> int:
        context = self._context()
        if context is None:
            return 0
        brokers, offline = context.image.brokers, context.offline_dirs
        count = 0
        for topic in context.image.topics.values():
            for index, info in enumerate(topic.partitions):
                if info.leader not in brokers or (offline and (topic.name, index) in offline.get(info.leader, ())):
                    count += 1
        return count

    @property
    def preferred_replica_imbalance_count(self) -> int:
        context = self._context()
        if context is None:
            return 0
        topics = context.image.topics.values()
        return sum(1 for topic in topics for info in topic.partitions if info.leader != info.replicas[0])

    @property
    def global_topic_count(self) -> int:
        context = self._context()
        return 0 if context is None else len(context.image.topics)

    @property
    def global_partition_count(self) -> int:
        context = self._context()
        return 0 if context is None else context.image.partition_count

    @property
    def topics_to_delete_count(self) -> int:
        context = self._context()
        return 0 if context is None else len(context.deletions)

    @property
    def topics_ineligible_to_delete_count(self) -> int:
        context = self._context()
        return 0 if context is None else sum(1 for each in context.deletions.values() if each.suspended)

    @property
    def replicas_to_delete_count(self) -> int:
        context = self._context()
        return 0 if context is None else sum(len(each.replicas) for each in context.deletions.values())

    @property
    def replicas_ineligible_to_delete_count(self) -> int:
        context = self._context()
        if context is None:
            return 0
        states = (state for each in context.deletions.values() for state in each.replicas.values())
        return sum(1 for state in states if state is ReplicaState.DELETION_INELIGIBLE)
