"""Coordinators and offsets are asked for once; who asks again is up to the caller."""

from __future__ import annotations

from typing import Any

from braidlog.client.network.lookups import find_coordinators, list_offsets
from braidlog.client.requests.find_coordinator import TRANSACTION
from braidlog.client.requests.list_offsets import IsolationLevel, ListedOffset, OffsetQuery
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorResponse
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from braidlog.wire.message import Message


class OneBroker:
    """Answers with what it is given, one after the other."""

    def __init__(self, version: int, *answers: Message) -> None:
        self.asked: list[Any] = []
        self._version = version
        self._answers = list(answers)

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        return self._version

    async def call(
        self, api_key: int, request: Message, answer: type[Any], *, at_most: int | None = None, timeout_s: float
    ) -> Any:
        self.asked.append(request)
        found = self._answers.pop(0)
        assert isinstance(found, answer)
        return found


async def test_several_keys_are_one_request() -> None:
    answers = [Coordinator(key="a", node_id=1), Coordinator(key="b", node_id=2)]
    broker = OneBroker(4, FindCoordinatorResponse(coordinators=answers))
    assert await find_coordinators(broker, TRANSACTION, ["a", "b"], 1.0) == answers
    assert len(broker.asked) == 1


async def test_an_older_broker_has_a_request_for_each_key() -> None:
    broker = OneBroker(3, FindCoordinatorResponse(node_id=1), FindCoordinatorResponse(node_id=2))
    found = await find_coordinators(broker, TRANSACTION, ["a", "b"], 1.0)
    assert [(each.key, each.node_id) for each in found] == [("a", 1), ("b", 2)]
    assert [each.key for each in broker.asked] == ["a", "b"]


async def test_offsets_are_asked_of_the_leader() -> None:
    partitions = [ListOffsetsPartitionResponse(partition_index=0, offset=5, timestamp=9, leader_epoch=1)]
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])
    leader = OneBroker(8, answer)
    where = TopicPartition("t", 0)
    found = await list_offsets(leader, {where: OffsetQuery(-1)}, IsolationLevel.READ_COMMITTED, 1.0, timeout_ms=700)
    assert found == {where: ListedOffset(5, 9, 1)}
    assert (leader.asked[0].isolation_level, leader.asked[0].timeout_ms) == (1, 700)
