"""Looks up offsets of many partitions of many topics at once, and tells of each that has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from braidlog.client.cluster import LIST_OFFSETS, MOVED_LEADER, Cluster
from braidlog.client.refusals import refusal
from braidlog.client.retrying import Retry
from braidlog.core.protocol_errors import (
    NONE,
    LeaderNotAvailableError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

# A partition without a leader may get one in a moment; longer than this a person should not wait to be told.
_PATIENCE_S: Final = 3.0


def look_up(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], new_retry: Callable[[float], Retry] = Retry
) -> dict[TopicPartition, int | ProtocolError]:
    """The first offset at or after a timestamp (or EARLIEST, LATEST), -1 for none; or why it is not known."""
    found: dict[TopicPartition, int | ProtocolError] = {}
    waiting = dict(timestamps)
    retry = new_retry(min(_PATIENCE_S, cluster.timeout_s))
    while waiting:
        found |= _look_up_once(cluster, waiting)
        waiting = {each: timestamp for each, timestamp in waiting.items() if _may_change(found[each])}
        if waiting and not retry.again():
            break
    return found


def known(found: Mapping[TopicPartition, int | ProtocolError]) -> dict[TopicPartition, int]:
    """All of them; the first that is not known is raised."""
    offsets: dict[TopicPartition, int] = {}
    for partition, offset in found.items():
        if isinstance(offset, ProtocolError):
            raise offset
        offsets[partition] = offset
    return offsets


def _may_change(offset: int | ProtocolError) -> bool:
    # What does not exist is not waited for: groups outlive the topics that they read.
    return (
        isinstance(offset, ProtocolError)
        and offset.code in MOVED_LEADER
        and not isinstance(offset, UnknownTopicOrPartitionError)
    )


def _look_up_once(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | ProtocolError]:
    found: dict[TopicPartition, int | ProtocolError] = {}
    topics = {topic.name: topic for topic in cluster.metadata(sorted({each.topic for each in timestamps}))}
    by_leader: dict[int, dict[str, list[ListOffsetsPartition]]] = {}
    for each, timestamp in timestamps.items():
        topic = topics[each.topic]
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        if topic.error_code != NONE:
            found[each] = refusal(topic.error_code, str(each))
        elif each.partition not in leaders:
            found[each] = UnknownTopicOrPartitionError(
                f"topic {each.topic} has no partition {each.partition}; it has {len(leaders)}, counted from 0"
            )
        elif leaders[each.partition] < 0:
            found[each] = refusal(LeaderNotAvailableError.code, str(each))
        else:
            asked = ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp)
            by_leader.setdefault(leaders[each.partition], {}).setdefault(each.topic, []).append(asked)
    for leader, wanted in by_leader.items():
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in wanted.items()],
        )
        for answer in cluster.node(leader).call(LIST_OFFSETS, request, ListOffsetsResponse).topics:
            for partition in answer.partitions:
                each = TopicPartition(answer.name, partition.partition_index)
                code = partition.error_code
                found[each] = partition.offset if code == NONE else refusal(code, str(each))
    return found
