"""Whether a new leader's log still has what was read from the last one (KIP-320).

A leader that was elected while it lacked records may have lost some that were read. It is asked where the epoch of the
last record read ends in its log: before the position means that the log was cut, and holds other records from there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.client.broker_errors import broker_error
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.errors import ClientError, LogTruncatedError
from braidlog.core.protocol_errors import NONE, ProtocolError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

OFFSET_FOR_LEADER_EPOCH: Final = 23
# Before version 3 the request needs rights that consumers do not have.
OLDEST_FOR_CONSUMERS: Final = 3
UNDEFINED: Final = -1


class EpochEndQuery(NamedTuple):
    """Where does `epoch`, that of the last record read, end for the leader of `leader_epoch`?"""

    leader_epoch: int
    epoch: int


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


class TruncationCheck(NamedTuple):
    """`resume_at` is where to go on if the log was cut and its end is known, else -1."""

    is_truncated: bool
    resume_at: int = UNDEFINED
    epoch: int = UNDEFINED


def can_validate(connection: PipelinedConnection) -> bool:
    return (
        connection.offers(OFFSET_FOR_LEADER_EPOCH)
        and connection.version_for(OFFSET_FOR_LEADER_EPOCH) >= OLDEST_FOR_CONSUMERS
    )


def check_truncation(position: int, answer: EpochEnd) -> TruncationCheck:
    if answer.epoch == UNDEFINED or answer.end_offset == UNDEFINED:
        # The leader knows nothing as old as what was read.
        return TruncationCheck(True)
    if answer.end_offset < position:
        return TruncationCheck(True, answer.end_offset, answer.epoch)
    return TruncationCheck(False)


def truncation_error(state: PartitionState, result: TruncationCheck) -> LogTruncatedError:
    partition = state.topic_partition
    known = result.resume_at != UNDEFINED
    what = f"its log now differs from offset {result.resume_at} on" if known else "its leader no longer has that epoch"
    how = f"seek to {result.resume_at} to read what replaced it" if known else "seek to where reading should go on"
    return LogTruncatedError(
        f"{partition} was cut below position {state.position} (epoch {state.position_epoch}): {what}, so records that "
        f"were read may be gone; {how}, or set auto.offset.reset to continue without an error",
        partition,
        int(state.position),
        result.resume_at,
    )


async def request_epoch_ends(
    connection: PipelinedConnection, questions: dict[TopicPartition, EpochEndQuery], timeout_s: float
) -> dict[TopicPartition, EpochEnd | ProtocolError | ClientError]:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for each, question in questions.items():
        asked = OffsetForLeaderPartition(
            partition=each.partition, current_leader_epoch=question.leader_epoch, leader_epoch=question.epoch
        )
        topics.setdefault(each.topic, OffsetForLeaderTopic(topic=each.topic)).partitions.append(asked)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))
    response = await connection.call(
        OFFSET_FOR_LEADER_EPOCH, request, OffsetForLeaderEpochResponse, timeout_s=timeout_s
    )
    answers: dict[TopicPartition, EpochEnd | ProtocolError | ClientError] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            each = TopicPartition(topic.topic, partition.partition)
            if partition.error_code == NONE:
                answers[each] = EpochEnd(partition.leader_epoch, partition.end_offset)
            else:
                answers[each] = broker_error(partition.error_code, str(each))
    for each in questions:
        if each not in answers:
            answers[each] = broker_error(UnknownTopicOrPartitionError.code, str(each))
    return answers
