from __future__ import annotations

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange, CompletedFetch
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.types import TopicPartition
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record

WHERE = TopicPartition("orders", 3)


def slice_of(data: bytes, position: int = 0, aborted: list[AbortedRange] | None = None) -> CompletedFetch:
    return CompletedFetch(PartitionState(WHERE), data, 0, len(data), position, aborted or [])


def read_all(found: CompletedFetch, step: int = 1000) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while not found.is_used_up:
        found.read(records, step)
    return records


def test_the_fields_of_a_record() -> None:
    data = build_batch(
        [Record(timestamp=1000, key=b"k", value=b"v", headers=(("h", None),))], base_offset=8, leader_epoch=2
    )
    (record,) = read_all(slice_of(data))
    assert (record.topic, record.partition, record.offset) == ("orders", 3, 8)
    assert (record.timestamp, record.timestamp_ms, record.timestamp_type) == (1000, 1000, 0)
    assert (record.key, record.value, record.headers, record.leader_epoch) == (b"k", b"v", (("h", None),), 2)
    assert record.topic_partition == WHERE
    assert "orders-3 at 8" in repr(record)


def test_a_time_set_by_the_broker() -> None:
    (record,) = read_all(slice_of(build_batch([Record(timestamp=5)], log_append_time_ms=99)))
    assert (record.timestamp, record.timestamp_type) == (99, 1)


def test_a_message_without_a_time() -> None:
    (record,) = read_all(slice_of(build_message_set([Record(value=b"v")], magic=0)))
    assert (record.timestamp, record.timestamp_type) == (-1, -1)
