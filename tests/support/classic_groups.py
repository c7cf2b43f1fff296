"""Classic groups driven by hand: a shard, its requests in short, and what members answer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import TopicFacts
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolSubscription
from braidlog.wire.generated.group_records import GroupMetadataKey, GroupMetadataValue
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.list_groups import ListGroupsRequest
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes
from support.responders import RecordingResponder, ShardDriver

SESSION_MS = 10_000
REBALANCE_MS = 60_000
GROUP = "orders"


class AnyTopics:
    """Every topic that is asked for exists."""

    def get(self, name: str) -> TopicFacts | None:
        return TopicFacts(name.encode().ljust(16, b"\0"), 4)

    def name_of(self, topic_id: bytes) -> str | None:
        return topic_id.rstrip(b"\0").decode()

    def names(self) -> Iterable[str]:
        return []

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        return frozenset()


def subscription(*topics: str, version: int = 0) -> bytes:
    return version_prefixed_bytes(ConsumerProtocolSubscription(topics=list(topics)), version)


class ClassicDriver(ShardDriver[GroupCoordinatorShard]):
    """A shard of groups; `settings` may be replaced at any time."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        ids = count(1)
        super().__init__(lambda: GroupCoordinatorShard(lambda: self.settings, AnyTopics(), lambda: f"id{next(ids)}"))

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        version: int = 9,
        client: str = "app",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group: str = GROUP,
    ) -> RecordingResponder:
        offered = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=reported) for name, reported in offered.items()],
        )
        caller = Caller(version, client, "/10.0.0.1")
        return self.submit(lambda shard, responder, now: shard.join_group(request, caller, responder, now), "join")

    def enter(self, **how: Any) -> tuple[str, RecordingResponder]:
        """A dynamic member's two steps: it has an id, and its join waits."""
        asked = self.join(**how)
        assert asked.error_code == 79, asked
        return asked.response.member_id, self.join(asked.response.member_id, **how)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> RecordingResponder:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in (assignments or {}).items()
            ],
        )
        caller = Caller(5, "app", "/10.0.0.1")
        return self.submit(lambda shard, responder, now: shard.sync_group(request, caller, responder, now), "sync")

    def heartbeat(
        self, member_id: str, generation: int, *, instance: str | None = None, group: str = GROUP
    ) -> RecordingResponder:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        caller = Caller(4, "app", "/10.0.0.1")
        return self.submit(lambda shard, responder, now: shard.heartbeat(request, caller, responder, now), "heartbeat")

    def leave(self, *members: str | tuple[str, str], version: int = 5, group: str = GROUP) -> RecordingResponder:
        """Members by id, or by (id, instance)."""
        named = [(member, None) if isinstance(member, str) else member for member in members]
        identities = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in named]
        if version >= 3:
            request = LeaveGroupRequest(group_id=group, members=identities)
        else:
            request = LeaveGroupRequest(group_id=group, member_id=identities[0].member_id)
        caller = Caller(version, "app", "/10.0.0.1")
        return self.submit(lambda shard, responder, now: shard.leave_group(request, caller, responder, now), "leave")

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        group: str = GROUP,
    ) -> RecordingResponder:
        committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        caller = Caller(8, "app", "/10.0.0.1")
        return self.submit(
            lambda shard, responder, now: shard.commit_offsets(request, caller, responder, now), "commit"
        )

    def committed(self, partition: int = 0, topic: str = "t", group: str = GROUP) -> int:
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
        caller = Caller(8, "app", "/10.0.0.1")
        responder = self.submit(
            lambda shard, responder, now: shard.fetch_offsets(request, caller, responder, now), "fetch"
        )
        offset = responder.response.groups[0].topics[0].partitions[0].committed_offset
        assert isinstance(offset, int)
        return offset

    def describe(self, group: str = GROUP) -> RecordingResponder:
        return self.submit(lambda shard, responder, now: shard.describe_group(group, responder, now), "describe")

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
        return self.submit(
            lambda shard, responder, now: shard.list_groups(request, responder, now), "list"
        ).response.groups

    def delete(self, group: str = GROUP) -> RecordingResponder:
        return self.submit(lambda shard, responder, now: shard.delete_group(group, responder, now), "delete")

    def last_value(self, group: str = GROUP) -> GroupMetadataValue | None:
        """The newest record of the group itself."""
        key = version_prefixed_bytes(GroupMetadataKey(group=group), 2)
        for entry in reversed(self.log):
            if isinstance(entry, ReplayedRecord) and entry.key == key:
                if entry.value is None:
                    return None
                assert read_version_prefix(entry.value) == 3
                return GroupMetadataValue.decode(reader_after_version(entry.value), 3)
        raise AssertionError(f"no record of {group} was written")

    # Whole scenes

    def settle(self, *members: str) -> int:
        """Take a group whose members' joins were just answered to Stable: each gets its own id as assignment."""
        group = self.group()
        generation = group.generation
        assert group.leader is not None
        followers = [member for member in members if member != group.leader]
        waiting = [self.sync(member, generation) for member in followers]
        waiting.append(self.sync(group.leader, generation, {member: member.encode() for member in members}))
        assert [responder.error_code for responder in waiting] == [0] * len(members), waiting
        assert group.state == "Stable"
        return generation

    def stable(self, size: int = 1, **how: Any) -> list[str]:
        """A stable group of dynamic members in its first generation."""
        entered = [self.enter(**how) for _ in range(size)]
        self.advance(3.0 if size == 1 else 6.0)
        assert all(responder.error_code == 0 for _, responder in entered), entered
        members = [member for member, _ in entered]
        self.settle(*members)
        return members

    def stable_static(self, *instances: str, version: int = 9) -> dict[str, str]:
        """A stable group of static members: their ids by instance."""
        waiting = {instance: self.join(instance=instance, version=version) for instance in instances}
        self.advance(6.0)
        members = {instance: str(responder.response.member_id) for instance, responder in waiting.items()}
        generation = self.group().generation
        leader = self.group().leader
        assert leader is not None
        for instance, member in members.items():
            if member != leader:
                self.sync(member, generation, instance=instance)
        self.sync(leader, generation, {member: member.encode() for member in members.values()})
        assert self.group().state == "Stable"
        return members
