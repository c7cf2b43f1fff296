from __future__ import annotations

import pytest

from braidlog.broker.handlers.topics.reassignments import (
    AlterReassignmentsHandler,
    ElectLeadersHandler,
    ListReassignmentsHandler,
)
from braidlog.core.protocol_errors import (
    ElectionNotNeededError,
    InvalidReplicaAssignmentError,
    NoReassignmentInProgressError,
    NotControllerError,
    UnknownTopicOrPartitionError,
)
from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from braidlog.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from braidlog.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from support.asked_broker import AskedBroker, on_broker


def move(topic: str, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[partition])])


@on_broker
async def test_each_partition_is_answered_by_itself(broker: AskedBroker) -> None:
    await broker.create("t")
    for request, code in (
        (move("t", [1]), 0),
        (move("t", [2]), InvalidReplicaAssignmentError.code),
        (move("t", None), NoReassignmentInProgressError.code),
        (move("gone", [1]), UnknownTopicOrPartitionError.code),
    ):
        (topic,) = (await broker.ask(request, 0)).responses
        assert [each.error_code for each in topic.partitions] == [code]


@on_broker
async def test_nothing_is_under_way_on_a_lone_broker(broker: AskedBroker) -> None:
    await broker.create("t")
    wanted = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
    for topics in (None, wanted):
        answer = await broker.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.topics) == (0, [])


@on_broker
async def test_elections(broker: AskedBroker) -> None:
    await broker.create("t")
    wanted = [TopicPartitions(topic="t", partitions=[0]), TopicPartitions(topic="gone", partitions=[3])]
    answer = await broker.ask(ElectLeadersRequest(topic_partitions=wanted), 2)
    codes = {
        each.topic: [part.error_code for part in each.partition_result] for each in answer.replica_election_results
    }
    assert codes == {"t": [ElectionNotNeededError.code], "gone": [UnknownTopicOrPartitionError.code]}
    # Asked for all, those that need none are not mentioned.
    answer = await broker.ask(ElectLeadersRequest(topic_partitions=None), 2)
    assert (answer.error_code, answer.replica_election_results) == (0, [])


@pytest.mark.parametrize("version", [0, 1])
def test_a_failure_in_the_form_of_each_version(version: int) -> None:
    error = NotControllerError("ask another")
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    answer = ElectLeadersHandler.error_response(request, version, error)
    assert answer.replica_election_results[0].partition_result[0].error_code == error.code
    assert answer.error_code == (error.code if version else 0)
    assert AlterReassignmentsHandler.error_response(move("t", [1]), 0, error).error_code == error.code
    listing = ListReassignmentsHandler.error_response(ListPartitionReassignmentsRequest(), 0, error)
    assert (listing.error_code, listing.error_message) == (error.code, "ask another")
