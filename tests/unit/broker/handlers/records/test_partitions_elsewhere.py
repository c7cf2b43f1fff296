"""A partition that the cluster has, but not this broker, is NOT_LEADER_OR_FOLLOWER: clients look for its leader.

UNKNOWN_TOPIC_OR_PARTITION would make some of them believe that the topic was deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from braidlog.wire.generated.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from braidlog.wire.generated.describe_producers import DescribeProducersRequest
from braidlog.wire.generated.describe_producers import TopicRequest as ProducersTopic
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.generated.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from braidlog.wire.message import Message
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.control_requests import brokers, led_by, topic_id, update_metadata
from support.in_process_server import answer, on_server

Question = tuple[str, int, Callable[[str, int], Message], Callable[[Any], int]]


def produce(topic: str, index: int) -> ProduceRequest:
    records = build_batch([Record(timestamp=1_700_000_000_000, value=b"v")])
    data = PartitionProduceData(index=index, records=records)
    named = TopicProduceData(name=topic, topic_id=topic_id(topic), partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[named])


def fetch(topic: str, index: int) -> FetchRequest:
    wanted = FetchPartition(partition=index, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=[wanted])])


def list_offsets(topic: str, index: int) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=index, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])


def offset_for_leader_epoch(topic: str, index: int) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=0)
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])


def delete_records(topic: str, index: int) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=index, offset=0)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])])


def describe_producers(topic: str, index: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[ProducersTopic(name=topic, partition_indexes=[index])])


def write_markers(topic: str, index: int) -> WriteTxnMarkersRequest:
    named = WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
    return WriteTxnMarkersRequest(
        markers=[WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[named])]
    )


QUESTIONS: list[Question] = [
    ("Produce", 9, produce, lambda answer: answer.responses[0].partition_responses[0].error_code),
    ("Produce", 13, produce, lambda answer: answer.responses[0].partition_responses[0].error_code),
    ("Fetch", 12, fetch, lambda answer: answer.responses[0].partitions[0].error_code),
    ("Fetch", 13, fetch, lambda answer: answer.responses[0].partitions[0].error_code),
    ("ListOffsets", 7, list_offsets, lambda answer: answer.topics[0].partitions[0].error_code),
    ("OffsetForLeaderEpoch", 4, offset_for_leader_epoch, lambda answer: answer.topics[0].partitions[0].error_code),
    ("DeleteRecords", 2, delete_records, lambda answer: answer.topics[0].partitions[0].error_code),
    ("DescribeProducers", 0, describe_producers, lambda answer: answer.topics[0].partitions[0].error_code),
    ("WriteTxnMarkers", 1, write_markers, lambda answer: answer.markers[0].topics[0].partitions[0].error_code),
]


def test_every_question_about_a_partition_of_another_broker(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        request = update_metadata("elsewhere", {0: led_by(2)}, live=brokers(1, 2), controller_epoch=99)
        await server.broker.metadata_cache.update(request)
        for api, version, make, code_of in QUESTIONS:
            known = code_of(await answer(server, api, version, make("elsewhere", 0)))
            assert known == NotLeaderOrFollowerError.code, (api, version)
            beyond = code_of(await answer(server, api, version, make("elsewhere", 1)))
            assert beyond == UnknownTopicOrPartitionError.code, (api, version)

    on_server(tmp_path, check, broker_id="1")
