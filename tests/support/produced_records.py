"""Produce requests of whole batches."""

from __future__ import annotations

from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.data_path import TOPIC, TOPIC_ID


def produce(batches: list[tuple[int, bytes]]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                topic_id=TOPIC_ID,
                partition_data=[PartitionProduceData(index=index, records=batch) for index, batch in batches],
            )
        ],
    )
