"""What a consumer reads: the topics it asked for, the partitions it has, and how far it is in each.

Used by the program's thread and by the engine's: every method takes `lock`, and nothing waits or calls a program's
code while holding it.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

INTERNAL_TOPICS: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


class SubscriptionKind(Enum):
    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    MANUAL = "partitions"


class SubscriptionState:
    def __init__(self, *, exclude_internal: bool = True) -> None:
        self.lock = threading.RLock()
        self.kind = SubscriptionKind.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.listener = RebalanceListener()
        # Rises when topics, pattern or kind change: a member that joined with another one has to join again.
        self.topics_version = 0
        # Rises with every change of the assignment.
        self.assignment_version = 0
        # Topics that metadata has to be kept of: ours, and as a group's leader those of all members.
        self.group_topics: frozenset[str] = frozenset()
        # Partitions whose `failure` a poll has to raise, oldest first.
        self.failures: deque[PartitionState] = deque()
        # Called (in either thread) after what has to be known of the cluster changed.
        self.on_topics: Callable[[], None] | None = None
        # Called in the program's thread after the group gave partitions: their positions have to be found.
        self.on_assigned: Callable[[], None] | None = None
        self._exclude_internal = exclude_internal
        self._states: dict[TopicPartition, PartitionState] = {}

    @property
    def is_auto(self) -> bool:
        return self.kind in (SubscriptionKind.TOPICS, SubscriptionKind.PATTERN)

    # What the program asks for

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        with self.lock:
            self._become(SubscriptionKind.TOPICS)
            self.pattern = None
            self.topics = frozenset(topics)
            self._subscribed(listener)

    def subscribe_pattern(
        self, pattern: re.Pattern[str], known_topics: Iterable[str], listener: RebalanceListener | None
    ) -> None:
        with self.lock:
            self._become(SubscriptionKind.PATTERN)
            self.pattern = pattern
            self.topics = self._matching(known_topics)
            self._subscribed(listener)

    def _subscribed(self, listener: RebalanceListener | None) -> None:
        self.listener = listener if listener is not None else RebalanceListener()
        self.group_topics = self.topics
        self.topics_version += 1
        self._notify_topics()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these, whatever others read; those that stay keep their position."""
        with self.lock:
            self._become(SubscriptionKind.MANUAL)
            self._set_assignment(partitions)
            self.topics = self.group_topics = frozenset(each.topic for each in self._states)
            self._notify_topics()

    def unsubscribe(self) -> None:
        with self.lock:
            self.kind = SubscriptionKind.NONE
            self.topics = self.group_topics = frozenset()
            self.pattern = None
            self.listener = RebalanceListener()
            self.topics_version += 1
            self._set_assignment(())
            self._notify_topics()

    def _become(self, kind: SubscriptionKind) -> None:
        if self.kind is not SubscriptionKind.NONE and self.kind is not kind:
            raise UserError(
                f"this consumer reads {self.kind.value} and cannot read {kind.value} as well; call unsubscribe() first"
            )
        self.kind = kind

    def _notify_topics(self) -> None:
        if self.on_topics is not None:
            self.on_topics()

    # What the cluster and the group say

    def match(self, known_topics: Iterable[str]) -> bool:
        """Take the topics that the pattern matches now; True when they are others than before."""
        with self.lock:
            if self.kind is not SubscriptionKind.PATTERN:
                return False
            topics = self._matching(known_topics)
            if topics == self.topics:
                return False
            self.topics = topics
            self.group_topics = topics
            self.topics_version += 1
            return True

    def _matching(self, known_topics: Iterable[str]) -> frozenset[str]:
        pattern = self.pattern
        assert pattern is not None
        # As in Java the whole name has to match.
        return frozenset(
            name
            for name in known_topics
            if pattern.fullmatch(name) and not (self._exclude_internal and name in INTERNAL_TOPICS)
        )

    def group_subscribe(self, topics: Iterable[str]) -> None:
        """As the group's leader: topics of all members, whose partitions are to be shared out."""
        with self.lock:
            self.group_topics = self.topics | frozenset(topics)
            self._notify_topics()

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """The whole assignment that the group gave; partitions that stay keep everything, also what is fetched."""
        with self.lock:
            wanted = list(dict.fromkeys(partitions))
            if not self.is_auto:
                raise ValueError(f"a group cannot assign partitions to a consumer that reads {self.kind.value}")
            if self.kind is SubscriptionKind.TOPICS:
                strange = sorted({each.topic for each in wanted} - self.topics)
                if strange:
                    raise ValueError(f"the group assigned topics that are not subscribed: {', '.join(strange)}")
            self._set_assignment(wanted)
        if self.on_assigned is not None:
            self.on_assigned()

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """These are about to go: still ours, but nothing more of them is fetched or returned."""
        with self.lock:
            for each in partitions:
                if each in self._states:
                    self._states[each].is_pending_revocation = True

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        states: dict[TopicPartition, PartitionState] = {}
        for each in partitions:
            states[each] = self._states.get(each) or PartitionState(each)
            states[each].is_pending_revocation = False
        for each, state in self._states.items():
            if each not in states:
                state.is_current = False
        self._states = states
        self.assignment_version += 1

    # What is assigned

    def assignment(self) -> list[TopicPartition]:
        with self.lock:
            return list(self._states)

    def assigned(self) -> frozenset[TopicPartition]:
        with self.lock:
            return frozenset(self._states)

    def states(self) -> list[PartitionState]:
        with self.lock:
            return list(self._states.values())

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition; raises for others."""
        state = self._states.get(partition)
        if state is None:
            raise UserError(f"{partition} is not assigned to this consumer, so it has no position here")
        return state

    def find(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    # Positions

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        with self.lock:
            self.state(partition).seek(offset, epoch)

    def request_reset(self, partitions: Iterable[TopicPartition], reset_to: int) -> None:
        """Read on from where `reset_to` (a timestamp, EARLIEST or LATEST) is found to be."""
        with self.lock:
            for each in partitions:
                self.state(each).request_reset(reset_to)

    def set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """All of them, or none where one is not assigned."""
        with self.lock:
            for state in [self.state(each) for each in partitions]:
                state.is_paused = paused

    def paused(self) -> frozenset[TopicPartition]:
        with self.lock:
            return frozenset(each for each, state in self._states.items() if state.is_paused)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions, where they are known: what a commit writes."""
        with self.lock:
            return {
                each: OffsetAndMetadata(int(state.position), "", int(state.position_epoch))
                for each, state in self._states.items()
                if state.has_position()
            }

    def position_of(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        with self.lock:
            state = self._states.get(partition)
            if state is None or not state.has_position():
                return None
            return OffsetAndMetadata(int(state.position), "", int(state.position_epoch))

    def fail(self, state: PartitionState, problem: BaseException) -> None:
        """Stop for this partition until a poll has raised the problem."""
        with self.lock:
            state.failure = problem
            self.failures.append(state)

    def take_failure(self) -> BaseException | None:
        """The oldest that still holds, to be raised; the partition is then tried again."""
        with self.lock:
            while self.failures:
                state = self.failures.popleft()
                problem, state.failure = state.failure, None
                if problem is not None and state.is_current:
                    return problem
            return None
