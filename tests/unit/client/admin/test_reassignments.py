"""Moves of replicas, and elections of leaders."""

from __future__ import annotations

import pytest

from braidlog.client.admin import reassignments
from braidlog.client.admin.admin import ElectionType
from braidlog.client.admin.reassignments import Reassignment
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    NoReassignmentInProgressError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from braidlog.wire.generated.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from braidlog.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from support.admin_fakes import asking

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def test_moves_begin_end_and_are_seen() -> None:
    partitions = [
        ReassignablePartitionResponse(partition_index=0),
        ReassignablePartitionResponse(partition_index=1, error_code=85),
    ]
    altered = AlterPartitionReassignmentsResponse(
        responses=[ReassignableTopicResponse(name="orders", partitions=partitions)]
    )
    ongoing = OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
    )
    listed = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="orders", partitions=[ongoing])])
    admin, node = asking(
        {
            reassignments.ALTER_PARTITION_REASSIGNMENTS: altered,
            reassignments.LIST_PARTITION_REASSIGNMENTS: listed,
        }
    )
    results = admin.alter_partition_reassignments({FIRST: [2], SECOND: None})
    assert results[FIRST] is None
    assert isinstance(results.errors[SECOND], NoReassignmentInProgressError)
    assert "nothing to cancel" in str(results.errors[SECOND])
    (topic,) = node.asked[0].topics
    assert [(each.partition_index, each.replicas) for each in topic.partitions] == [(0, [2]), (1, None)]
    assert admin.list_partition_reassignments() == {FIRST: Reassignment((1, 2), (2,), (1,))}
    assert node.asked[1].topics is None
    admin, _ = asking({reassignments.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsResponse(error_code=31)})
    with pytest.raises(ClusterAuthorizationFailedError):
        admin.alter_partition_reassignments({FIRST: [2]})


def test_elections_of_some_or_of_all() -> None:
    result = ReplicaElectionResult(topic="orders", partition_result=[PartitionResult(partition_id=0)])
    admin, node = asking({reassignments.ELECT_LEADERS: ElectLeadersResponse(replica_election_results=[result])})
    assert admin.elect_leaders([FIRST], ElectionType.UNCLEAN) == {FIRST: None}
    assert admin.elect_leaders() == {FIRST: None}
    assert [request.election_type for request in node.asked] == [1, 0]
    assert node.asked[1].topic_partitions is None
