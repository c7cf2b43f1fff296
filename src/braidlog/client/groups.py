"""What a cluster knows of its groups, of either protocol and any protocol type, and what can be done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from braidlog.client.cluster import Cluster
from braidlog.client.coordinators import GROUP, Coordinators, Place
from braidlog.client.group_members import Member, classic_members, consumer_members
from braidlog.client.node import Node
from braidlog.client.refusals import check, refusal
from braidlog.client.retrying import Retry
from braidlog.core.protocol_errors import (
    NONE,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    ProtocolError,
    UnsupportedVersionError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated import consumer_group_describe, describe_groups
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from braidlog.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
DELETE_GROUPS: Final = 42
OFFSET_DELETE: Final = 47
CONSUMER_GROUP_DESCRIBE: Final = 69

# The newest versions of OffsetFetch and OffsetCommit that name topics, and the first that fetches for several groups.
_NAMED_TOPICS: Final = 9
_SEVERAL_GROUPS: Final = 8

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
# Nobody is in such a group: its offsets may be changed from outside.
INACTIVE_STATES: Final = ("Empty", "Dead")
DEAD: Final = "Dead"


class Listed(NamedTuple):
    group_id: str
    # Of the protocol ("classic", "consumer"), and of what its members do ("consumer", "connect", "" for none).
    type: str
    protocol_type: str
    state: str
    coordinator: int


class Group(NamedTuple):
    group_id: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    members: list[Member]
    coordinator: Place

    @property
    def is_foreign(self) -> bool:
        """Its members share out something else than partitions."""
        return self.protocol_type not in ("", CONSUMER)


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class Groups:
    def __init__(self, cluster: Cluster, new_retry: Callable[[float], Retry] = Retry) -> None:
        self._cluster = cluster
        self._new_retry = new_retry
        self._coordinators = Coordinators(cluster, GROUP, new_retry)

    def listed(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Listed]:
        """All groups, from every broker, by name."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        found: dict[str, Listed] = {}
        for broker_id in self._cluster.broker_ids:
            for each in self._list_of(broker_id, request).groups:
                kind = each.group_type or CLASSIC
                row = Listed(each.group_id, kind, each.protocol_type, each.group_state, broker_id)
                found[each.group_id] = row
        return sorted(found.values())

    def _list_of(self, broker_id: int, request: ListGroupsRequest) -> ListGroupsResponse:
        retry = self._new_retry(self._cluster.timeout_s)
        while True:
            response = self._cluster.node(broker_id).call(LIST_GROUPS, request, ListGroupsResponse)
            if response.error_code != CoordinatorLoadInProgressError.code or not retry.again():
                check(response.error_code, f"groups of broker {broker_id}")
                return response

    def describe(self, names: Iterable[str]) -> dict[str, Group | ProtocolError]:
        """Each group, or why it cannot be told of; one that does not exist is a GroupIdNotFoundError."""
        asked = list(dict.fromkeys(names))
        found: dict[str, Group | ProtocolError] = {}
        newer = self._coordinators.ask(asked, _describe_newer, lambda each: each.error_code)
        # Those of the older protocol are unknown to the newer description, as those that do not exist are.
        older = [name for name in asked if newer[name].error_code in _NOT_NEWER]
        classic = self._coordinators.ask(older, _describe_older, lambda each: each.error_code)
        for name in asked:
            if name in classic:
                found[name] = self._older_group(classic[name])
            else:
                found[name] = self._newer_group(newer[name])
        return found

    def _newer_group(self, answer: consumer_group_describe.DescribedGroup) -> Group | ProtocolError:
        name = answer.group_id
        if answer.error_code != NONE:
            return refusal(answer.error_code, f"group {name}", answer.error_message)
        place = self._coordinators.place_of(name)
        members = consumer_members(answer.members)
        return Group(name, CONSUMER, CONSUMER, answer.group_state, answer.assignor_name, members, place)

    def _older_group(self, answer: describe_groups.DescribedGroup) -> Group | ProtocolError:
        name = answer.group_id
        if answer.error_code == NONE and answer.group_state == DEAD:
            return refusal(GroupIdNotFoundError.code, f"group {name}")
        if answer.error_code != NONE:
            # Brokers word this one in their own way; ours says what to do.
            message = None if answer.error_code == GroupIdNotFoundError.code else answer.error_message
            return refusal(answer.error_code, f"group {name}", message)
        place = self._coordinators.place_of(name)
        members = classic_members(answer.members, answer.protocol_type == CONSUMER)
        return Group(name, CLASSIC, answer.protocol_type, answer.group_state, answer.protocol_data, members, place)

    def offsets(self, names: Iterable[str]) -> dict[str, dict[TopicPartition, Committed]]:
        """What groups committed; nothing for one that does not exist."""
        answers = self._coordinators.ask(names, _fetch_offsets, lambda each: each.error_code)
        found: dict[str, dict[TopicPartition, Committed]] = {}
        for name, answer in answers.items():
            if answer.error_code != GroupIdNotFoundError.code:
                check(answer.error_code, f"group {name}")
            committed: dict[TopicPartition, Committed] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    check(each.error_code, f"group {name}, {partition}")
                    if each.committed_offset >= 0:
                        committed[partition] = Committed(
                            each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                        )
            found[name] = committed
        return found

    def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commit offsets on behalf of a group without members; the error code of each partition."""
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offsets[TopicPartition(topic, partition)],
                        committed_metadata="",
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]

        def commit(node: Node, names: list[str]) -> dict[str, dict[TopicPartition, int]]:
            request = OffsetCommitRequest(group_id=name, generation_id_or_member_epoch=-1, topics=topics)
            answer = node.call(OFFSET_COMMIT, request, OffsetCommitResponse, at_most=_NAMED_TOPICS)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in answer.topics
                for each in topic.partitions
            }
            return {name: codes}

        # The coordinator refuses all partitions alike when it is not, or not yet, the group's.
        return self._coordinators.ask([name], commit, lambda codes: max(codes.values(), default=NONE))[name]

    def delete(self, names: Iterable[str]) -> dict[str, int]:
        """Delete groups with all their offsets; the error code of each."""

        def delete(node: Node, some: list[str]) -> dict[str, int]:
            request = DeleteGroupsRequest(groups_names=some)
            results = node.call(DELETE_GROUPS, request, DeleteGroupsResponse).results
            return {result.group_id: result.error_code for result in results}

        return self._coordinators.ask(names, delete, lambda code: code)

    def delete_offsets(self, name: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Forget what a group committed for partitions; the error code of each."""
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in by_topic(partitions).items()
        ]

        def delete(node: Node, names: list[str]) -> dict[str, OffsetDeleteResponse]:
            request = OffsetDeleteRequest(group_id=name, topics=topics)
            return {name: node.call(OFFSET_DELETE, request, OffsetDeleteResponse)}

        answer = self._coordinators.ask([name], delete, lambda each: each.error_code)[name]
        check(answer.error_code, f"group {name}")
        return {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


_NOT_NEWER: Final = (GroupIdNotFoundError.code, UnsupportedVersionError.code)


def _describe_newer(node: Node, names: list[str]) -> dict[str, consumer_group_describe.DescribedGroup]:
    if not node.offers(CONSUMER_GROUP_DESCRIBE):
        code = UnsupportedVersionError.code
        return {name: consumer_group_describe.DescribedGroup(group_id=name, error_code=code) for name in names}
    request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=names)
    response = node.call(CONSUMER_GROUP_DESCRIBE, request, consumer_group_describe.ConsumerGroupDescribeResponse)
    return {group.group_id: group for group in response.groups}


def _describe_older(node: Node, names: list[str]) -> dict[str, describe_groups.DescribedGroup]:
    request = describe_groups.DescribeGroupsRequest(groups=names)
    response = node.call(DESCRIBE_GROUPS, request, describe_groups.DescribeGroupsResponse)
    return {group.group_id: group for group in response.groups}


def _fetch_offsets(node: Node, names: list[str]) -> dict[str, OffsetFetchResponseGroup]:
    if node.version_for(OFFSET_FETCH, _NAMED_TOPICS) >= _SEVERAL_GROUPS:
        groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
        several = OffsetFetchRequest(groups=groups)
        answer = node.call(OFFSET_FETCH, several, OffsetFetchResponse, at_most=_NAMED_TOPICS)
        return {group.group_id: group for group in answer.groups}
    found: dict[str, OffsetFetchResponseGroup] = {}
    for name in names:
        single = OffsetFetchRequest(group_id=name, topics=None)
        answer = node.call(OFFSET_FETCH, single, OffsetFetchResponse, at_most=_NAMED_TOPICS)
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in answer.topics
        ]
        found[name] = OffsetFetchResponseGroup(group_id=name, topics=topics, error_code=answer.error_code)
    return found
