"""A group shard whose members speak the consumer protocol, or both: requests in few words, topics that can change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import TopicFacts
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from braidlog.wire.generated.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartition,
)
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes
from support.responders import RecordingResponder, ShardDriver

GROUP = "g"
SESSION_S = 45.0
REBALANCE_S = 30.0
CLASSIC_SESSION_S = 10.0
COOPERATIVE = "cooperative-sticky"

# Partitions by topic name.
Owned = dict[str, frozenset[int]]


class ChangingTopics:
    """Topics that a test creates, grows and deletes; a name that comes back has another id."""

    def __init__(self, **partitions: int) -> None:
        self._ids = itertools.count(1)
        self.facts: dict[str, TopicFacts] = {}
        self._names: dict[bytes, str] = {}
        self.racks: dict[tuple[str, int], frozenset[str]] = {}
        for name, count in partitions.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        topic_id = next(self._ids).to_bytes(16, "big")
        self.facts[name] = TopicFacts(topic_id, partitions)
        self._names[topic_id] = name

    def grow(self, name: str, partitions: int) -> None:
        self.facts[name] = self.facts[name]._replace(partitions=partitions)

    def delete(self, name: str) -> None:
        del self._names[self.facts.pop(name).topic_id]

    def get(self, name: str) -> TopicFacts | None:
        return self.facts.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def names(self) -> Iterable[str]:
        return list(self.facts)

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        return self.racks.get((name, partition), frozenset())


class ConsumerDriver(ShardDriver[GroupCoordinatorShard]):
    def __init__(self, topics: ChangingTopics, settings: GroupSettings | None = None) -> None:
        self.topics = topics
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        numbers = itertools.count(1)
        super().__init__(
            lambda: GroupCoordinatorShard(lambda: self.settings, topics, lambda: f"member-{next(numbers)}")
        )

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup), group
        return group

    @property
    def classic(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup), group
        return group

    def topics_changed(self) -> None:
        self.apply(self.shard.topics_changed(self.now))

    # The newer protocol

    def heartbeat(self, version: int = 0, host: str = "/1.2.3.4", **fields: Any) -> RecordingResponder:
        request = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        caller = Caller(version, "client", host)
        return self.submit(lambda shard, responder, now: shard.consumer_heartbeat(request, caller, responder, now))

    def join(self, member_id: str, *topics: str, version: int = 1, **fields: Any) -> RecordingResponder:
        assignment_of = {
            "member_id": member_id,
            "member_epoch": 0,
            "rebalance_timeout_ms": int(REBALANCE_S * 1000),
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.heartbeat(version, **{**assignment_of, **fields})

    def beat(self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any) -> RecordingResponder:
        parts = None
        if owned is not None:
            parts = [
                RequestTopicPartitions(topic_id=self.topics.facts[name].topic_id, partitions=sorted(numbers))
                for name, numbers in owned.items()
                if name in self.topics.facts
            ]
        return self.heartbeat(
            **{"version": 1, "member_id": member_id, "member_epoch": epoch, "topic_partitions": parts, **fields}
        )

    def leave(self, member_id: str, epoch: int = -1, **fields: Any) -> RecordingResponder:
        return self.heartbeat(**{"version": 1, "member_id": member_id, "member_epoch": epoch, **fields})

    def assignment_of(self, responder: RecordingResponder) -> Owned | None:
        """The assignment of an answer; None where there was none in it."""
        assert responder.error_code == 0, responder
        if responder.response.assignment is None:
            return None
        return self.named({p.topic_id: frozenset(p.partitions) for p in responder.response.assignment.topic_partitions})

    def named(self, assignment: Any) -> Owned:
        return {self.topics.name_of(topic_id) or "gone": numbers for topic_id, numbers in assignment.items()}

    def settle(self, *member_ids: str) -> dict[str, Owned]:
        """Heartbeats of members that do as they are told, until nobody is told anything new."""
        owned = {member_id: self.named(self.group.members[member_id].progress.assigned) for member_id in member_ids}
        for _ in range(20):
            before = self.group.durable_state()
            for member_id in member_ids:
                answer = self.beat(member_id, self.group.members[member_id].epoch, owned[member_id])
                assignment_of = self.assignment_of(answer)
                owned[member_id] = owned[member_id] if assignment_of is None else assignment_of
            if self.group.durable_state() == before:
                return owned
        raise AssertionError("the group does not settle")

    # The older protocol

    def join_classic(
        self, member_id: str, *topics: str, owned: Owned | None = None, version: int = 9, **fields: Any
    ) -> RecordingResponder:
        request = JoinGroupRequest(
            **{
                "group_id": GROUP,
                "member_id": member_id,
                "session_timeout_ms": int(CLASSIC_SESSION_S * 1000),
                "rebalance_timeout_ms": int(REBALANCE_S * 1000),
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name=COOPERATIVE, metadata=subscription(topics, owned))],
                **fields,
            }
        )
        caller = Caller(version, "client", "/1.2.3.4")
        return self.submit(lambda shard, responder, now: shard.join_group(request, caller, responder, now))

    def enter_classic(self, *topics: str, **fields: Any) -> tuple[str, RecordingResponder]:
        """Join in two steps; the id, and the responder of the second."""
        member_id = self.join_classic("", *topics, **fields).response.member_id
        return member_id, self.join_classic(member_id, *topics, **fields)

    def sync_classic(
        self, member_id: str, generation: int, assignments: dict[str, Owned] | None = None, **fields: Any
    ) -> RecordingResponder:
        parts = [
            SyncGroupRequestAssignment(member_id=name, assignment=assignment(owned))
            for name, owned in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            **{
                "group_id": GROUP,
                "member_id": member_id,
                "generation_id": generation,
                "protocol_type": "consumer",
                "protocol_name": COOPERATIVE,
                "assignments": parts,
                **fields,
            }
        )
        caller = Caller(5, "client", "/1.2.3.4")
        return self.submit(lambda shard, responder, now: shard.sync_group(request, caller, responder, now))

    def beat_classic(self, member_id: str, generation: int, **fields: Any) -> RecordingResponder:
        request = HeartbeatRequest(**{"group_id": GROUP, "member_id": member_id, "generation_id": generation, **fields})
        caller = Caller(4, "client", "/1.2.3.4")
        return self.submit(lambda shard, responder, now: shard.heartbeat(request, caller, responder, now))

    def leave_classic(self, *members: MemberIdentity | str, version: int = 5) -> RecordingResponder:
        leaving = [MemberIdentity(member_id=m) if isinstance(m, str) else m for m in members]
        request = LeaveGroupRequest(group_id=GROUP, members=leaving)
        if version < 3:
            request = LeaveGroupRequest(group_id=GROUP, member_id=leaving[0].member_id)
        caller = Caller(version, "client", "/1.2.3.4")
        return self.submit(lambda shard, responder, now: shard.leave_group(request, caller, responder, now))


def subscription(topics: Iterable[str], owned: Owned | None = None, version: int = 1) -> bytes:
    parts = [OwnedTopicPartition(topic=name, partitions=sorted(numbers)) for name, numbers in (owned or {}).items()]
    return version_prefixed_bytes(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=parts), version)


def assignment(owned: Owned, version: int = 1) -> bytes:
    parts = [AssignedTopicPartition(topic=name, partitions=sorted(numbers)) for name, numbers in owned.items()]
    return version_prefixed_bytes(ConsumerProtocolAssignment(assigned_partitions=parts), version)


def synced(responder: RecordingResponder) -> Owned:
    """The assignment of a SyncGroup's answer."""
    assert responder.error_code == 0, responder
    content = responder.response.assignment
    assignment_of = ConsumerProtocolAssignment.decode(reader_after_version(content), read_version_prefix(content))
    return {part.topic: frozenset(part.partitions) for part in assignment_of.assigned_partitions}


def numbers(*values: int) -> frozenset[int]:
    return frozenset(values)
