"""OffsetFetch (api 9): where groups go on reading.

v0   from the coordination store               v8    many groups at once
v1   from the group's coordinator              v9    members of the newer protocol say who they are
v2   null topics: everything committed         v10   topics by id
v7   `require_stable` keeps offsets back that an open transaction is about to change
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.faults import error_of
from braidlog.broker.tickets import caller_of
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import Coordinator
from braidlog.core.protocol_errors import NONE, ProtocolError, UnknownTopicIdError, UnknownTopicOrPartitionError
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import encode_response
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from braidlog.wire.message import Message

_ERROR_OF_THE_WHOLE_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10


class OffsetFetchHandler:
    def __init__(self, groups: Coordinator[GroupShard], topics: Topics, legacy: LegacyOffsets, tasks: Tasks) -> None:
        self._groups = groups
        self._topics = topics
        self._legacy = legacy
        self._tasks = tasks

    def handle(self, request: OffsetFetchRequest, exchange: Exchange) -> None:
        wanted = _wanted(request, exchange.version)
        gathering = Gathering(exchange, len(wanted))
        if exchange.version == 0:
            exchange.channel.mute()
            self._tasks.spawn("OffsetFetch v0", self._fetch_from_store(wanted[0], gathering))
            return
        caller = caller_of(exchange)
        for place, group in enumerate(wanted):
            ticket = GroupTicket(gathering, place, group, self._topics)
            self._ask(ticket, request.require_stable, caller)
        if not wanted:
            gathering.reply()

    def _ask(self, ticket: GroupTicket, require_stable: bool, caller: Caller) -> None:
        request = OffsetFetchRequest(groups=[ticket.known], require_stable=require_stable)
        self._groups.submit(
            ticket.known.group_id, ticket, lambda shard, now: shard.fetch_offsets(request, caller, ticket, now)
        )

    async def _fetch_from_store(self, wanted: OffsetFetchRequestGroup, gathering: Gathering) -> None:
        """There a partition that is unknown and one without an offset get the same answer."""
        topics = wanted.topics or []
        places = [place for topic in topics for place in self._places(topic)]
        try:
            offsets = dict(zip(places, await self._legacy.fetch(wanted.group_id, places), strict=True))
        except Exception as problem:
            gathering.put(0, _failed(wanted, gathering.version, error_of(problem, "OffsetFetch v0")))
            return
        answers = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    _stored(index, offsets.get(TopicPartition(topic.name, index))) for index in topic.partition_indexes
                ],
            )
            for topic in topics
        ]
        gathering.put(0, OffsetFetchResponseGroup(group_id=wanted.group_id, topics=answers))

    def _places(self, topic: OffsetFetchRequestTopics) -> list[TopicPartition]:
        """Those of the wanted partitions that there are."""
        facts = self._topics.get(topic.name)
        count = 0 if facts is None else facts.partitions
        return [TopicPartition(topic.name, index) for index in topic.partition_indexes if 0 <= index < count]


class Gathering:
    """The answer about several groups, whose coordinators answer one by one."""

    __slots__ = ("_answers", "_exchange", "_missing")

    def __init__(self, exchange: Exchange, count: int) -> None:
        self._exchange = exchange
        self._answers: list[OffsetFetchResponseGroup] = [OffsetFetchResponseGroup() for _ in range(count)]
        self._missing = count

    @property
    def version(self) -> int:
        return self._exchange.version

    def put(self, place: int, answer: OffsetFetchResponseGroup) -> None:
        self._answers[place] = answer
        self._missing -= 1
        if self._missing == 0:
            self.reply()

    def reply(self) -> None:
        exchange = self._exchange
        response = _response(self._answers, exchange.version)
        exchange.reply(encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response).parts())


class GroupTicket:
    """One group's share of a gathering. `known` is what its coordinator is asked, by name."""

    __slots__ = ("_by_id", "_gathering", "_place", "_topics", "_unknown", "_wanted", "known")

    def __init__(self, gathering: Gathering, place: int, wanted: OffsetFetchRequestGroup, topics: Topics) -> None:
        self._gathering = gathering
        self._place = place
        self._wanted = wanted
        self._topics = topics
        self._by_id = gathering.version >= _TOPIC_IDS_FROM
        self._unknown: list[OffsetFetchResponseTopics] = []
        self.known = wanted
        if self._by_id and wanted.topics is not None:
            self.known = OffsetFetchRequestGroup(
                group_id=wanted.group_id,
                member_id=wanted.member_id,
                member_epoch=wanted.member_epoch,
                topics=self._named(wanted.topics),
            )

    def _named(self, asked: list[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
        named = []
        for topic in asked:
            name = self._topics.name_of(topic.topic_id)
            if name is not None:
                named.append(OffsetFetchRequestTopics(name=name, partition_indexes=topic.partition_indexes))
            else:
                answers = [_nothing(index, UnknownTopicIdError.code) for index in topic.partition_indexes]
                self._unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=answers))
        return named

    def answer(self, response: Message) -> None:
        if not isinstance(response, OffsetFetchResponse):
            raise TypeError(f"{response} is no answer to OffsetFetch")
        answer = response.groups[0]
        if self._by_id:
            with_ids = list(self._unknown)
            for topic in answer.topics:
                facts = self._topics.get(topic.name)
                # A topic that is gone has no id to be told by.
                if facts is not None:
                    topic.topic_id = facts.topic_id
                    with_ids.append(topic)
            answer.topics = with_ids
        self._gathering.put(self._place, answer)

    def fail(self, error: ProtocolError) -> None:
        self._gathering.put(self._place, _failed(self._wanted, self._gathering.version, error))


def _wanted(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """The groups, in the form of version 8, whatever the request's version."""
    if version >= _MANY_GROUPS_FROM:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _nothing(index: int, code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


def _stored(index: int, offset: int | None) -> OffsetFetchResponsePartitions:
    if offset is None:
        return _nothing(index, UnknownTopicOrPartitionError.code)
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset, metadata="")


def _failed(wanted: OffsetFetchRequestGroup, version: int, error: ProtocolError) -> OffsetFetchResponseGroup:
    code = error.code
    if version >= _ERROR_OF_THE_WHOLE_FROM:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=code)
    topics = [
        OffsetFetchResponseTopics(name=topic.name, partitions=[_nothing(i, code) for i in topic.partition_indexes])
        for topic in wanted.topics or []
    ]
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics, error_code=code)


def _response(groups: list[OffsetFetchResponseGroup], version: int) -> OffsetFetchResponse:
    if version >= _MANY_GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    topics = [
        OffsetFetchResponseTopic(name=topic.name, partitions=[_before_groups(p) for p in topic.partitions])
        for topic in group.topics
    ]
    told = group.error_code if version >= _ERROR_OF_THE_WHOLE_FROM else NONE
    return OffsetFetchResponse(topics=topics, error_code=told)


def _before_groups(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )


def refuse(request: OffsetFetchRequest, version: int, error: ProtocolError) -> OffsetFetchResponse:
    return _response([_failed(wanted, version, error) for wanted in _wanted(request, version)], version)
