"""OffsetFetch (api 9): where groups go on reading.

v0   from the coordination store               v8    many groups at once
v1   from the group's coordinator              v9    members of the consumer protocol say who they are
v2   null topics: everything committed         v10   topics by id
v7   `require_stable` keeps offsets back that an open transaction is about to change
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from braidlog.broker.authorization.authorizer import Authorizer, refusal
from braidlog.broker.handlers.groups.group_requests import caller_of
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.broker.requests.pending_results import PendingResults
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.coordinator.effects import Caller, Responder
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import (
    NONE,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.time_slice import TimeSlice, run_in_slices
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
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
# What is fetched without letting others run in between.
_MOST_GROUPS: Final = 50
_MOST_PARTITIONS: Final = 500

# By the place of the group in the request, and of the piece in its group.
GroupResults: TypeAlias = PendingResults[int, OffsetFetchResponseGroup]
PieceResults: TypeAlias = PendingResults[int, OffsetFetchResponseGroup | ProtocolError]
# Whether the client may know of a topic; none where nobody asks.
IsVisible: TypeAlias = Callable[[str], bool] | None


class OffsetFetchHandler:
    def __init__(
        self,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        topics: Topics,
        legacy: LegacyOffsets,
        tasks: Tasks,
        authorizer: Authorizer,
    ) -> None:
        self._authorizer = authorizer
        self._groups = groups
        self._topics = topics
        self._legacy = legacy
        self._tasks = tasks

    def handle(self, request: OffsetFetchRequest, exchange: Exchange) -> None:
        version = exchange.version
        wanted = _wanted(request, version)
        if version > 0 and _is_much(wanted):
            exchange.channel.mute()
            self._tasks.spawn("a large OffsetFetch", self._fetch_much(wanted, request.require_stable, exchange))
            return
        if version == 0:
            exchange.channel.mute()
            self._tasks.spawn("OffsetFetch v0", self._fetch_from_store(wanted[0], exchange))
            return
        results: GroupResults = PendingResults(lambda groups: exchange.answer(_response(_in_order(groups), version)))
        results.expect(len(wanted))
        caller = caller_of(exchange)
        is_visible = self._visibility(exchange)
        for place, group in enumerate(wanted):
            responder = GroupResponder(results, version, place, group, self._topics, is_visible)
            error = self._refusal(group, exchange)
            if error is not None:
                responder.fail(error)
            else:
                self._ask(responder.known, responder, request.require_stable, caller)
        results.all_asked()

    def _refusal(self, group: OffsetFetchRequestGroup, exchange: Exchange) -> ProtocolError | None:
        operation, resource = AclOperation.DESCRIBE, AclResourceType.GROUP
        if self._authorizer.authorize(exchange, operation, resource, group.group_id):
            return None
        return refusal(exchange, operation, resource, group.group_id)

    def _visibility(self, exchange: Exchange) -> IsVisible:
        authorizer = self._authorizer
        if not authorizer.enabled:
            return None
        return lambda topic: authorizer.authorize(exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)

    def _ask(self, group: OffsetFetchRequestGroup, responder: Responder, require_stable: bool, caller: Caller) -> None:
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        self._groups.submit(
            group.group_id, responder, lambda shard, now: shard.fetch_offsets(request, caller, responder, now)
        )

    async def _fetch_much(
        self, wanted: list[OffsetFetchRequestGroup], require_stable: bool, exchange: Exchange
    ) -> None:
        """As much as others can wait for, then they have their turn; no answer is awaited before all are asked."""
        version = exchange.version
        caller = caller_of(exchange)
        time_slice = TimeSlice()
        gathered: list[OffsetFetchResponseGroup] = []
        complete = asyncio.Event()

        def done(groups: dict[int, OffsetFetchResponseGroup]) -> None:
            gathered.extend(_in_order(groups))
            complete.set()

        results: GroupResults = PendingResults(done)
        results.expect(len(wanted))
        is_visible = self._visibility(exchange)
        try:
            for place, group in enumerate(wanted):
                responder = GroupResponder(results, version, place, group, self._topics, is_visible)
                refused = self._refusal(group, exchange)
                if refused is not None:
                    responder.fail(refused)
                    await time_slice.yield_if_over()
                    continue
                pieces = _pieces(responder.known)
                piece_results: PieceResults = PendingResults(partial(_join_pieces, responder, pieces))
                piece_results.expect(len(pieces))
                for number, piece in enumerate(pieces):
                    self._ask(piece.group, PieceResponder(piece_results, number), require_stable, caller)
                    await time_slice.yield_if_over()
                    if exchange.channel.closed:
                        return
                piece_results.all_asked()
            results.all_asked()
            await complete.wait()
            response = await run_in_slices(_answering(gathered, version))
        except Exception as problem:
            error = to_protocol_error(problem, "OffsetFetch")
            response = _response([_failed(group, version, error) for group in wanted], version)
        exchange.answer(response)

    async def _fetch_from_store(self, wanted: OffsetFetchRequestGroup, exchange: Exchange) -> None:
        """There a partition that is unknown and one without an offset get the same answer."""
        refused = self._refusal(wanted, exchange)
        if refused is not None:
            exchange.answer(_response([_failed(wanted, exchange.version, refused)], exchange.version))
            return
        topics = wanted.topics or []
        is_visible = self._visibility(exchange)
        hidden = {topic.name for topic in topics if is_visible is not None and not is_visible(topic.name)}
        places = [place for topic in topics if topic.name not in hidden for place in self._places(topic)]
        try:
            offsets = dict(zip(places, await self._legacy.fetch(wanted.group_id, places), strict=True))
        except Exception as problem:
            error = to_protocol_error(problem, "OffsetFetch v0")
            exchange.answer(_response([_failed(wanted, exchange.version, error)], exchange.version))
            return
        answers = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    _stored(index, offsets.get(TopicPartition(topic.name, index))) for index in topic.partition_indexes
                ],
            )
            for topic in topics
            if topic.name not in hidden
        ]
        answers += [_forbidden(topic) for topic in topics if topic.name in hidden]
        group = OffsetFetchResponseGroup(group_id=wanted.group_id, topics=answers)
        exchange.answer(_response([group], exchange.version))

    def _places(self, topic: OffsetFetchRequestTopics) -> list[TopicPartition]:
        """Those of the wanted partitions that there are."""
        facts = self._topics.get(topic.name)
        count = 0 if facts is None else facts.partitions
        return [TopicPartition(topic.name, index) for index in topic.partition_indexes if 0 <= index < count]

    @staticmethod
    def error_response(request: OffsetFetchRequest, version: int, error: ProtocolError) -> OffsetFetchResponse:
        return _response([_failed(wanted, version, error) for wanted in _wanted(request, version)], version)


def _in_order(groups: dict[int, OffsetFetchResponseGroup]) -> list[OffsetFetchResponseGroup]:
    return [groups[place] for place in sorted(groups)]


class GroupResponder:
    """The responder of one group. `known` is what its coordinator is asked, by name."""

    __slots__ = (
        "_by_id",
        "_forbidden",
        "_is_visible",
        "_place",
        "_results",
        "_topics",
        "_unknown",
        "_version",
        "_wanted",
        "known",
    )

    def __init__(
        self,
        results: GroupResults,
        version: int,
        place: int,
        wanted: OffsetFetchRequestGroup,
        topics: Topics,
        is_visible: IsVisible,
    ) -> None:
        self._results = results
        self._version = version
        self._place = place
        self._wanted = wanted
        self._topics = topics
        self._by_id = version >= _TOPIC_IDS_FROM
        self._is_visible = is_visible
        self._unknown: list[OffsetFetchResponseTopics] = []
        self._forbidden: list[OffsetFetchResponseTopics] = []
        self.known = wanted
        if wanted.topics is not None and (self._by_id or is_visible is not None):
            self.known = OffsetFetchRequestGroup(
                group_id=wanted.group_id,
                member_id=wanted.member_id,
                member_epoch=wanted.member_epoch,
                topics=self._named(wanted.topics),
            )

    def _named(self, asked: list[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
        named = []
        for topic in asked:
            name = self._topics.name_of(topic.topic_id) if self._by_id else topic.name
            if name is None:
                answers = [_nothing(index, UnknownTopicIdError.code) for index in topic.partition_indexes]
                self._unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=answers))
            elif self._is_visible is not None and not self._is_visible(name):
                self._forbidden.append(_forbidden(topic))
            else:
                named.append(OffsetFetchRequestTopics(name=name, partition_indexes=topic.partition_indexes))
        return named

    def answer(self, response: Message) -> None:
        if not isinstance(response, OffsetFetchResponse):
            raise TypeError(f"{response} is no answer to OffsetFetch")
        answer = response.groups[0]
        if self._wanted.topics is None and self._is_visible is not None:
            answer.topics = [topic for topic in answer.topics if self._is_visible(topic.name)]
        if self._by_id:
            with_ids = list(self._unknown)
            for topic in answer.topics:
                facts = self._topics.get(topic.name)
                # A topic that is gone has no id to be named by.
                if facts is not None:
                    topic.topic_id = facts.topic_id
                    with_ids.append(topic)
            answer.topics = with_ids
        answer.topics += self._forbidden
        self._results.put(self._place, answer)

    def fail(self, error: ProtocolError) -> None:
        self._results.put(self._place, _failed(self._wanted, self._version, error))


class Piece(NamedTuple):
    """Some of the partitions wanted of a group; `continues` where the last piece cut a topic in two."""

    group: OffsetFetchRequestGroup
    continues: bool


class PieceResponder:
    """The responder of one piece of what is wanted of a group."""

    __slots__ = ("_number", "_results")

    def __init__(self, results: PieceResults, number: int) -> None:
        self._results = results
        self._number = number

    def answer(self, response: Message) -> None:
        if not isinstance(response, OffsetFetchResponse):
            raise TypeError(f"{response} is no answer to OffsetFetch")
        self._results.put(self._number, response.groups[0])

    def fail(self, error: ProtocolError) -> None:
        self._results.put(self._number, error)


def _join_pieces(
    responder: GroupResponder, pieces: list[Piece], results: dict[int, OffsetFetchResponseGroup | ProtocolError]
) -> None:
    """The answer about one group, from those about its pieces."""
    topics: list[OffsetFetchResponseTopics] = []
    for number, piece in enumerate(pieces):
        answer = results[number]
        if isinstance(answer, ProtocolError):
            responder.fail(answer)
            return
        if piece.continues:
            topics[-1].partitions += answer.topics[0].partitions
        topics += answer.topics[1:] if piece.continues else answer.topics
    group = OffsetFetchResponseGroup(group_id=responder.known.group_id, topics=topics)
    responder.answer(OffsetFetchResponse(groups=[group]))


def _is_much(wanted: list[OffsetFetchRequestGroup]) -> bool:
    partitions = sum(len(topic.partition_indexes) for group in wanted for topic in group.topics or ())
    topics = sum(len(group.topics or ()) for group in wanted)
    return len(wanted) > _MOST_GROUPS or topics + partitions > _MOST_PARTITIONS


def _pieces(wanted: OffsetFetchRequestGroup) -> list[Piece]:
    """At least one: the group itself may be what is wrong."""
    if wanted.topics is None:
        return [Piece(wanted, False)]
    pieces: list[Piece] = []
    topics: list[OffsetFetchRequestTopics] = []
    continues = False
    size = 0

    def cut() -> None:
        group = OffsetFetchRequestGroup(
            group_id=wanted.group_id, member_id=wanted.member_id, member_epoch=wanted.member_epoch, topics=topics
        )
        pieces.append(Piece(group, continues))

    for topic in wanted.topics:
        indexes = topic.partition_indexes
        start = 0
        while True:
            taken = indexes[start : start + _MOST_PARTITIONS - size]
            topics.append(OffsetFetchRequestTopics(name=topic.name, partition_indexes=taken))
            start += len(taken)
            size += len(taken) + 1
            if size >= _MOST_PARTITIONS:
                cut()
                topics, continues, size = [], start < len(indexes), 0
            if start >= len(indexes):
                break
    if topics or not pieces:
        cut()
    return pieces


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


def _forbidden(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    code = TopicAuthorizationFailedError.code
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=[_nothing(each, code) for each in topic.partition_indexes]
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
    work = _answering(groups, version)
    while True:
        try:
            next(work)
        except StopIteration as end:
            response = end.value
            assert isinstance(response, OffsetFetchResponse)
            return response


def _answering(groups: list[OffsetFetchResponseGroup], version: int) -> Generator[None, None, OffsetFetchResponse]:
    """Yields from time to time, for there may be very many partitions."""
    if version >= _MANY_GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    group_error = group.error_code if version >= _ERROR_OF_THE_WHOLE_FROM else NONE
    response = OffsetFetchResponse(topics=[], error_code=group_error)
    for topic in group.topics:
        answer = OffsetFetchResponseTopic(name=topic.name, partitions=[])
        for start in range(0, len(topic.partitions), _MOST_PARTITIONS):
            answer.partitions += [_before_groups(p) for p in topic.partitions[start : start + _MOST_PARTITIONS]]
            yield
        response.topics.append(answer)
    return response


def _before_groups(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )
