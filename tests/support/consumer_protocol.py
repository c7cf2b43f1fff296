"""One group of the consumer protocol on one broker, with members played by hand, and answers that can be compared."""

from __future__ import annotations

import uuid
from typing import Any

from braidlog.coordinator.partitioning import partition_for
from braidlog.wire.generated import group_records as layouts
from braidlog.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions
from braidlog.wire.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartition,
)
from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from braidlog.wire.generated.sync_group import SyncGroupRequest
from braidlog.wire.message import Message
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.reading import read_batch
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes
from support.eventually import eventually
from support.oracle import Side
from support.raw import as_plain

LAYOUTS: dict[int, tuple[type[Message], type[Message]]] = {
    3: (layouts.ConsumerGroupMetadataKey, layouts.ConsumerGroupMetadataValue),
    4: (layouts.ConsumerGroupPartitionMetadataKey, layouts.ConsumerGroupPartitionMetadataValue),
    5: (layouts.ConsumerGroupMemberMetadataKey, layouts.ConsumerGroupMemberMetadataValue),
    6: (layouts.ConsumerGroupTargetAssignmentMetadataKey, layouts.ConsumerGroupTargetAssignmentMetadataValue),
    7: (layouts.ConsumerGroupTargetAssignmentMemberKey, layouts.ConsumerGroupTargetAssignmentMemberValue),
    8: (layouts.ConsumerGroupCurrentMemberAssignmentKey, layouts.ConsumerGroupCurrentMemberAssignmentValue),
}
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 30_000
MEMBER_ID_REQUIRED = 79
# Partitions by topic name.
Owned = dict[str, list[int]]


class RawConsumerMember:
    """A member: what it was told, and what it owns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.epoch = 0
        self.owned: Owned = {}
        self.topics: list[str] = []


class RawConsumerGroup:
    """A group. Methods answer with plain values in which members go by their names."""

    def __init__(self, side: Side, group: str) -> None:
        self.side = side
        self.group = group
        self.actors: dict[str, RawConsumerMember] = {}

    def actor(self, name: str) -> RawConsumerMember:
        return self.actors.setdefault(name, RawConsumerMember(name))

    def _name_of(self, member_id: str | None) -> str | None:
        for actor in self.actors.values():
            if actor.member_id and actor.member_id == member_id:
                return actor.name
        return member_id

    def _topic(self, topic_id: bytes) -> str:
        return next((name for name, known in self.side.topic_ids.items() if known == topic_id), "an unknown topic")

    def _parts(self, owned: Owned) -> list[RequestTopicPartitions]:
        return [
            RequestTopicPartitions(topic_id=self.side.topic_ids[topic], partitions=list(numbers))
            for topic, numbers in owned.items()
        ]

    # The newer protocol

    def heartbeat(self, version: int = 0, **fields: Any) -> Any:
        return self.side.ask("ConsumerGroupHeartbeat", version, ConsumerGroupHeartbeatRequest(**fields))

    def refusal(self, version: int = 0, **fields: Any) -> int:
        return int(self.heartbeat(version, **{"group_id": self.group, **fields}).error_code)

    def join(self, name: str, *topics: str, version: int = 0, **fields: Any) -> Any:
        actor = self.actor(name)
        actor.topics = list(topics)
        if version >= 1:
            actor.member_id = str(uuid.uuid4())
        answer = self.heartbeat(
            version,
            **{
                "group_id": self.group,
                "member_id": actor.member_id,
                "member_epoch": 0,
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "subscribed_topic_names": list(topics),
                "topic_partitions": [],
                **fields,
            },
        )
        return self._take(actor, answer)

    def beat(self, name: str, owned: Owned | None = None, **fields: Any) -> Any:
        """A heartbeat that says only what is given."""
        actor = self.actor(name)
        answer = self.heartbeat(
            **{
                "group_id": self.group,
                "member_id": actor.member_id,
                "member_epoch": actor.epoch,
                "topic_partitions": None if owned is None else self._parts(owned),
                **fields,
            }
        )
        return self._take(actor, answer)

    def settle(self, name: str) -> Any:
        """A heartbeat that says that what was assigned is what is owned."""
        return self.beat(name, self.actor(name).owned)

    def settle_all(self, *names: str) -> None:
        """Until nobody is told anything new."""
        for _ in range(10):
            before = [(self.actor(name).epoch, self.actor(name).owned) for name in names]
            for name in names:
                self.settle(name)
            if before == [(self.actor(name).epoch, self.actor(name).owned) for name in names]:
                return
        raise AssertionError("the group does not settle")

    def leave(self, name: str, epoch: int = -1, **fields: Any) -> Any:
        return self.beat(name, member_epoch=epoch, **fields)

    def _take(self, actor: RawConsumerMember, answer: Any) -> Any:
        assignment = None
        if answer.error_code == 0:
            actor.member_id = answer.member_id
            if answer.member_epoch >= 0:
                actor.epoch = answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                actor.owned = {self._topic(part.topic_id): sorted(part.partitions) for part in parts}
                assignment = {topic: len(numbers) for topic, numbers in sorted(actor.owned.items())}
        return (
            answer.error_code,
            self._name_of(answer.member_id),
            answer.member_epoch,
            answer.heartbeat_interval_ms,
            assignment,
        )

    def owned(self, *names: str) -> list[Owned]:
        return [self.actor(name).owned for name in names]

    def describe(self) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group])
        answer: Any = self.side.ask("ConsumerGroupDescribe", 0, request)
        group = answer.groups[0]
        members = [
            (
                self._name_of(member.member_id),
                member.instance_id,
                member.rack_id,
                member.member_epoch,
                member.client_id,
                member.client_host,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex,
                _counts(member.assignment),
                _counts(member.target_assignment),
            )
            for member in group.members
        ]
        head = (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
        return head, sorted(members)

    # The older protocol

    def join_classic(self, name: str, *topics: str, owned: Owned | None = None, **fields: Any) -> Any:
        """Joins as a cooperative consumer, with the id it is given."""
        actor = self.actor(name)
        actor.topics = list(topics)
        if owned is None:
            owned = actor.owned
        subscription = ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[OwnedTopicPartition(topic=topic, partitions=parts) for topic, parts in owned.items()],
        )
        request = JoinGroupRequest(
            **{
                "group_id": self.group,
                "member_id": actor.member_id,
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "protocol_type": "consumer",
                "protocols": [
                    JoinGroupRequestProtocol(
                        name="cooperative-sticky", metadata=version_prefixed_bytes(subscription, 1)
                    )
                ],
                **fields,
            }
        )
        answer: Any = self.side.ask("JoinGroup", 9, request)
        if answer.error_code == MEMBER_ID_REQUIRED:
            actor.member_id = request.member_id = answer.member_id
            answer = self.side.ask("JoinGroup", 9, request)
        if answer.error_code == 0:
            actor.member_id, actor.epoch = answer.member_id, answer.generation_id
        return (
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            self._name_of(answer.leader),
            self._name_of(answer.member_id),
            len(answer.members),
            answer.skip_assignment,
        )

    def sync_classic(self, name: str, **fields: Any) -> Any:
        actor = self.actor(name)
        request = SyncGroupRequest(
            **{
                "group_id": self.group,
                "member_id": actor.member_id,
                "generation_id": actor.epoch,
                "protocol_type": "consumer",
                "protocol_name": "cooperative-sticky",
                **fields,
            }
        )
        answer: Any = self.side.ask("SyncGroup", 5, request)
        if answer.error_code != 0:
            return (answer.error_code,)
        actor.owned = {}
        version = 0
        if answer.assignment:
            version = read_version_prefix(answer.assignment)
            reported = ConsumerProtocolAssignment.decode(reader_after_version(answer.assignment), version)
            actor.owned = {part.topic: sorted(part.partitions) for part in reported.assigned_partitions}
        counts = {topic: len(numbers) for topic, numbers in sorted(actor.owned.items())}
        return 0, answer.protocol_type, answer.protocol_name, version, counts

    def beat_classic(self, name: str, **fields: Any) -> int:
        actor = self.actor(name)
        request = HeartbeatRequest(
            **{"group_id": self.group, "member_id": actor.member_id, "generation_id": actor.epoch, **fields}
        )
        answer: Any = self.side.ask("Heartbeat", 4, request)
        return int(answer.error_code)

    def leave_classic(self, *names: str) -> Any:
        leaving = [MemberIdentity(member_id=self.actor(name).member_id) for name in names]
        answer: Any = self.side.ask("LeaveGroup", 5, LeaveGroupRequest(group_id=self.group, members=leaving))
        return answer.error_code, [member.error_code for member in answer.members]

    # Offsets

    def commit(self, member_id: str, epoch: int, topic: str, offset: int, version: int = 9) -> int:
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
        )
        answer: Any = self.side.ask("OffsetCommit", version, request)
        return int(answer.topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int, topic: str) -> Any:
        wanted = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=member_id,
            member_epoch=epoch,
            topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
        )
        answer: Any = self.side.ask("OffsetFetch", 9, OffsetFetchRequest(groups=[wanted]))
        group = answer.groups[0]
        return group.error_code, [part.committed_offset for topic in group.topics for part in topic.partitions]

    # Topics

    def add_partitions(self, topic: str, count: int) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=30_000
        )
        answer: Any = self.side.ask("CreatePartitions", 3, request)
        assert answer.results[0].error_code == 0, answer

    def delete_topic(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
        answer: Any = self.side.ask("DeleteTopics", 6, request)
        assert answer.responses[0].error_code == 0, answer

    def beat_until(self, name: str, epoch: int) -> Any:
        """What the heartbeat is told that brings the member to the epoch: a broker may learn of topics later."""
        reported: list[Any] = []

        def reached() -> bool:
            reported.append(self.beat(name))
            return self.actor(name).epoch >= epoch

        eventually(reached)
        return reported[-1]

    # What the group has in the log

    def records(self, partitions: int) -> dict[Any, Any]:
        """The newest record of each kind and member: names for ids, numbers of partitions for partitions."""
        data = offsets_log(self.side, partition_for(self.group, partitions))
        found: dict[Any, Any] = {}
        for header in iterate_headers(data, 0, len(data)):
            for record in read_batch(data, header):
                kind = read_version_prefix(record.key or b"")
                layout = LAYOUTS.get(kind)
                if layout is None:
                    continue
                key, value = layout
                reported: Any = key.decode(reader_after_version(record.key or b""), kind)
                if reported.group_id == self.group:
                    content = None
                    if record.value is not None:
                        content = self._plain(as_plain(value.decode(reader_after_version(record.value), 0)))
                    found[key.__name__, self._name_of(getattr(reported, "member_id", None))] = content
        return {key: value for key, value in found.items() if value is not None}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return sorted((self._plain(item) for item in value), key=repr)
        if not isinstance(value, dict):
            return value
        if set(value) == {"topic_id", "partitions"}:
            return self._topic(value["topic_id"]), len(value["partitions"])
        # Which epoch came before is for members that miss an answer; it may be remembered for longer.
        reported = {name: self._plain(item) for name, item in value.items() if name != "previous_member_epoch"}
        if "topic_id" in reported:
            reported["topic_id"] = self._topic(reported["topic_id"])
        return reported


def offsets_log(side: Side, partition: int) -> bytes:
    """A partition of `__consumer_offsets`, as it is."""
    place = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=8_388_608)
    topic = FetchTopic(topic="__consumer_offsets", partitions=[place])
    answer: Any = side.ask("Fetch", 11, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]))
    return bytes(as_plain(answer.responses[0].partitions[0].records) or b"")


def _counts(assignment: Any) -> dict[str, int]:
    return {part.topic_name: len(part.partitions) for part in sorted(assignment.topic_partitions, key=_topic_name)}


def _topic_name(part: Any) -> str:
    return str(part.topic_name)
