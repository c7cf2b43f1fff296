"""What the controller counts, under Kafka's names: all zero on a broker that is not the controller."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from braidlog.controller.plan import ControllerContext
from braidlog.controller.replicas import ReplicaState


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
