"""Offsets by partition from each leader, and what is said of those that have none."""

from __future__ import annotations

import pytest

from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.records import DELETE_RECORDS, ListedOffset, OffsetSpec
from braidlog.client.requests.list_offsets import LIST_OFFSETS
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError, UnsupportedVersionError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from support.admin_fakes import ScriptedCluster, ScriptedNode
from support.retry_clock import RetryClock

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)


def test_log_ends_of_what_is_there_and_what_is_not() -> None:
    def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=each.partition_index + 40)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    nodes = {1: ScriptedNode({LIST_OFFSETS: offsets}), 2: ScriptedNode({LIST_OFFSETS: offsets})}
    cluster = ScriptedCluster(nodes, {"orders": [1, 2, -1]})
    gone = TopicPartition("gone", 0)
    beyond = TopicPartition("orders", 9)
    leaderless = TopicPartition("orders", 2)
    patience = RetryClock()
    calls = admin_over(AdminApiDriver(cluster, 60.0, patience.retry))
    wanted = dict.fromkeys([ORDERS_0, ORDERS_1, gone, beyond, leaderless], OffsetSpec.LATEST)
    found = calls.list_offsets(wanted)
    assert (found[ORDERS_0], found[ORDERS_1]) == (ListedOffset(40, -1, -1), ListedOffset(41, -1, -1))
    assert isinstance(found.errors[gone], UnknownTopicOrPartitionError)
    assert "has no partition 9; it has 3" in str(found.errors[beyond])
    assert "no leader now" in str(found.errors[leaderless])
    # What may come is waited for a moment, far from the deadline; what was found is not asked for again.
    assert 0.1 < patience.now < 3.0
    assert len(nodes[1].asked) == len(nodes[2].asked) == 1


def test_offsets_that_a_broker_is_too_old_for() -> None:
    node = ScriptedNode({LIST_OFFSETS: lambda request: ListOffsetsResponse()}, {LIST_OFFSETS: 6})
    calls = admin_over(ScriptedCluster({1: node}, {"orders": [1]}))
    with pytest.raises(UnsupportedVersionError, match="too old to be asked for MAX_TIMESTAMP"):
        calls.list_offsets({ORDERS_0: OffsetSpec.MAX_TIMESTAMP})
    with pytest.raises(UserError, match="neither a timestamp"):
        calls.list_offsets({ORDERS_0: -6})


def test_records_are_deleted_where_the_leader_is() -> None:
    def delete(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        topics = [
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=each.offset,
                        error_code=1 if each.offset > 100 else 0,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DeleteRecordsResponse(topics=topics)

    nodes = {1: ScriptedNode({DELETE_RECORDS: delete}), 2: ScriptedNode({DELETE_RECORDS: delete})}
    calls = admin_over(ScriptedCluster(nodes, {"orders": [1, 2]}))
    found = calls.delete_records({ORDERS_1: 101, ORDERS_0: 7})
    assert found[ORDERS_0] == 7
    assert list(found) == [ORDERS_1, ORDERS_0]
    assert "orders-1" in str(found.errors[ORDERS_1])
    assert len(nodes[1].asked) == len(nodes[2].asked) == 1
