"""Interceptors, serializers and partitioners of a program's own, in their order."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.errors import RecordTooLargeError, SerializationError
from braidlog.client.producer.delivery import Delivery, ProducerRecord
from braidlog.client.producer.send_path import SendPath
from braidlog.client.producer.send_pipeline import SendPipeline
from braidlog.client.settings import PRODUCER, Settings
from support.send_path_harness import SendPathHarness


class PipelineHarness(SendPathHarness):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        chosen = Settings.of(PRODUCER, None, {"bootstrap_servers": "localhost:1", **settings})
        pipeline = SendPipeline.of(chosen, self.find_topic)
        assert pipeline is not None
        self.pipeline = pipeline
        self.send_path = SendPath(self.accumulator, self.metadata_wait, pipeline)

    def find_topic(self, topic: str) -> Any:
        if topic not in self.accumulator.topics:
            self.metadata_wait.await_topic(topic, -1, 1.0)
        return self.accumulator.topics[topic].view

    def send(self, value: Any, **options: Any) -> Delivery:
        return self.send_path.send("t", value, **options)


class Seen:
    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.reported: list[tuple[Any, Any]] = []
        self.closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(value=f"{record.value}!", headers=(*record.headers, ("seen", b"1")))

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.reported.append((metadata, error))

    def close(self) -> None:
        self.closed = True


def test_without_settings_there_is_no_pipeline() -> None:
    chosen = Settings.of(PRODUCER, None, {"bootstrap_servers": "localhost:1"})
    assert SendPipeline.of(chosen, lambda topic: None) is None


def test_interceptors_come_before_serializers() -> None:
    seen = Seen()
    scene = PipelineHarness(interceptor_classes=[seen], value_serializer=lambda value: value.upper().encode())
    scene.send("v", partition=0, headers={"a": b"0"})
    (record,) = scene.records()[0]
    assert (record.value, record.headers) == (b"V!", (("a", b"0"), ("seen", b"1")))
    assert seen.sent == [ProducerRecord("t", "v", None, 0, None, (("a", b"0"),))]
    ((metadata, error),) = seen.reported
    assert (metadata.partition, error) == (0, None)
    scene.pipeline.close()
    assert seen.closed


def test_interceptors_are_called_for_refused_records() -> None:
    seen = Seen()
    scene = PipelineHarness(interceptor_classes=[seen])
    with pytest.raises(RecordTooLargeError):
        scene.send("v" * 2_000_000)
    ((metadata, error),) = seen.reported
    assert metadata is None
    assert isinstance(error, RecordTooLargeError)


def test_the_error_of_a_serializer_names_topic_and_part() -> None:
    scene = PipelineHarness(key_serializer="int32")
    with pytest.raises(SerializationError, match=r"topic t .*its key"):
        scene.send(b"v", key="no number")
    scene.send(b"v", key=7, partition=0)
    assert [record.key for record in scene.records()[0]] == [b"\x00\x00\x00\x07"]


def test_a_partitioner_chooses_unless_a_partition_is_named() -> None:
    scene = PipelineHarness(partitioner_class=lambda topic, key, value, partitions: len(key) % partitions)
    scene.send(b"v", key=b"abc")
    scene.send(b"v", key=b"abc", partition=1)
    assert {partition: len(records) for partition, records in scene.records().items()} == {3: 1, 1: 1}


def test_round_robin() -> None:
    scene = PipelineHarness(partitioner_class="round_robin")
    deliveries = [scene.send(b"v", key=b"k") for _ in range(8)]
    scene.records()
    assert [delivery.result(0).partition for delivery in deliveries] == [0, 1, 2, 3] * 2
