"""Requests about offsets in any version, and the groups and transactions that commit them, over a plain socket."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.eventually import eventually
from support.raw import ask

GROUP, TRANSACTION = 0, 1
MEMBER_ID_REQUIRED = 79
CONCURRENT_TRANSACTIONS = 51
# The coordinator is not there yet, or still loads.
NOT_YET = {14, 15, 16}

# (topic, partition) -> offset, or the offset and its metadata.
Wanted = Mapping[tuple[str, int], int | tuple[int, str | None]]


def _offset(value: int | tuple[int, str | None]) -> tuple[int, str | None]:
    return value if isinstance(value, tuple) else (value, "")


def commit_request(
    version: int,
    group: str,
    offsets: Wanted,
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    leader_epoch: int = -1,
    topic_ids: Mapping[str, bytes] | None = None,
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), value in offsets.items():
        offset, metadata = _offset(value)
        wanted = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        if version >= 6:
            wanted.committed_leader_epoch = leader_epoch
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        if version >= 10 and topic_ids is not None:
            topic.topic_id = topic_ids[name]
        topic.partitions.append(wanted)
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))
    if version >= 1:
        request.generation_id_or_member_epoch = generation
        request.member_id = member_id
    if version >= 7:
        request.group_instance_id = instance_id
    return request


def fetch_request(
    version: int,
    group: str,
    wanted: Mapping[str, Sequence[int]] | None,
    *,
    stable: bool = False,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> OffsetFetchRequest:
    if version < 8:
        old = None
        if wanted is not None:
            old = [OffsetFetchRequestTopic(name=name, partition_indexes=list(p)) for name, p in wanted.items()]
        request = OffsetFetchRequest(group_id=group, topics=old)
    else:
        new = None
        if wanted is not None:
            new = [OffsetFetchRequestTopics(name=name, partition_indexes=list(p)) for name, p in wanted.items()]
        one = OffsetFetchRequestGroup(group_id=group, topics=new)
        if version >= 9:
            one.member_id, one.member_epoch = member_id, member_epoch
        request = OffsetFetchRequest(groups=[one])
    if version >= 7:
        request.require_stable = stable
    return request


def delete_request(group: str, wanted: Mapping[str, Sequence[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in wanted.items()
        ],
    )


def find_coordinator(port: int, key: str, kind: int = GROUP) -> None:
    """Make the coordinator's topic and wait until the coordinator is there."""

    def found() -> bool:
        answer: Any = ask(port, "FindCoordinator", 2, FindCoordinatorRequest(key=key, key_type=kind))
        return bool(answer.error_code == 0)

    eventually(found)
    if kind == GROUP:

        def loaded() -> bool:
            answer: Any = ask(port, "OffsetFetch", 7, fetch_request(7, key, {}))
            return answer.error_code not in NOT_YET

        eventually(loaded)


class Member:
    """A member of a classic group that is alone in it, as far as it went."""

    def __init__(self, port: int, group: str, protocol_type: str = "consumer", instance_id: str | None = None) -> None:
        self.port = port
        self.group = group
        self.protocol_type = protocol_type
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def join(self, *topics: str) -> None:
        """Alone, so the answer comes at once."""
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_subscription(topics))],
        )
        answer: Any = ask(self.port, "JoinGroup", 7, request)
        if answer.error_code == MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = ask(self.port, "JoinGroup", 7, request)
        assert answer.error_code == 0, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id

    def sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"\x00\x00" + bytes(8))],
        )
        answer: Any = ask(self.port, "SyncGroup", 5, request)
        assert answer.error_code == 0, answer


class ModernMember:
    """A member of a group of the consumer protocol, alone in it."""

    def __init__(self, port: int, group: str) -> None:
        self.port = port
        self.group = group
        self.member_id = ""
        self.epoch = 0

    def join(self, *topics: str) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id="",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
        answer: Any = ask(self.port, "ConsumerGroupHeartbeat", 0, request)
        assert answer.error_code == 0, answer
        self.member_id, self.epoch = answer.member_id, answer.member_epoch


def _subscription(topics: Sequence[str]) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Transaction:
    """A transactional producer that commits offsets and nothing else."""

    def __init__(self, port: int, transactional_id: str) -> None:
        self.port = port
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1

    def init(self) -> None:
        find_coordinator(self.port, self.transactional_id, TRANSACTION)
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)

        def begun() -> bool:
            answer: Any = ask(self.port, "InitProducerId", 4, request)
            if answer.error_code in (*NOT_YET, CONCURRENT_TRANSACTIONS):
                return False
            assert answer.error_code == 0, answer
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            return True

        eventually(begun)

    def add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group,
        )

        def added() -> bool:
            answer: Any = ask(self.port, "AddOffsetsToTxn", 3, request)
            assert answer.error_code in (0, CONCURRENT_TRANSACTIONS), answer
            return bool(answer.error_code == 0)

        eventually(added)

    def commit_request(
        self,
        version: int,
        group: str,
        offsets: Wanted,
        *,
        epoch: int | None = None,
        producer_id: int | None = None,
        generation: int = -1,
        member_id: str = "",
    ) -> TxnOffsetCommitRequest:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), value in offsets.items():
            offset, metadata = _offset(value)
            topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name)).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.producer_epoch if epoch is None else epoch,
            topics=list(topics.values()),
        )
        if version >= 3:
            request.generation_id, request.member_id = generation, member_id
        return request

    def end(self, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commits,
        )
        answer: Any = ask(self.port, "EndTxn", 3, request)
        assert answer.error_code == 0, answer
