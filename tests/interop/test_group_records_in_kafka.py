"""What braidlog wrote of groups of the consumer protocol is read by Apache Kafka's own coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braidlog.wire.apis import api_by_name, decode_response, encode_request
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.records.batch import iterate_headers
from support.broker import BRAIDLOG, KAFKA, start_target
from support.consumer_protocol import RawConsumerGroup, offsets_log
from support.eventually import eventually
from support.groups import KAFKA_SETTINGS
from support.offset_requests import find_coordinator
from support.oracle import Side
from support.raw import RawConnection

pytestmark = pytest.mark.peer

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}
OFFSETS = "__consumer_offsets"
# Whom Kafka lets write to its internal topics.
ADMIN = "__admin_client"


def lived_through(side: Side) -> list[RawConsumerGroup]:
    """Groups in every state that leaves its traces in the log."""
    handover, static, upgraded, downgraded, empty, gone, reborn = casts = [
        RawConsumerGroup(side, name)
        for name in ("handover", "static", "upgraded", "downgraded", "empty", "gone", "reborn")
    ]
    handover.join("a", "four")
    handover.settle("a")
    handover.join("b", "four", "two")
    handover.beat("a")
    handover.settle("a")
    handover.beat("b")
    handover.join("c", "two")
    handover.leave("c")
    static.join("a", "four", instance_id="one")
    static.settle("a")
    static.leave("a", -2, instance_id="one")
    static.join("b", "four", instance_id="one")
    static.join("c", "four", instance_id="two")
    static.leave("c", -2, instance_id="two")
    upgraded.join_classic("old", "four")
    upgraded.sync_classic("old")
    upgraded.join("new", "four")
    upgraded.join_classic("old", "four")
    downgraded.join("new", "four")
    downgraded.join_classic("old", "four")
    downgraded.leave("new")
    for cast in (empty, gone, reborn):
        cast.join("new", "four")
        cast.leave("new")
    side.ask("DeleteGroups", 2, DeleteGroupsRequest(groups_names=["gone"]))
    reborn.join_classic("old", "four")
    reborn.sync_classic("old")
    return casts


def copy_into_kafka(data: bytes, port: int) -> None:
    produce = api_by_name("Produce").key
    with RawConnection(port) as connection:
        for header in iterate_headers(data, 0, len(data)):
            # A producer's batch starts at offset 0.
            batch = bytes(8) + data[header.position + 8 : header.position + header.size]
            part = PartitionProduceData(index=0, records=batch)
            wanted = TopicProduceData(name=OFFSETS, partition_data=[part])
            frame = encode_request(
                produce, 9, 1, ADMIN, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[wanted])
            )
            connection.send_bytes(b"".join(bytes(piece) for piece in frame.parts()))
            answer: Any = decode_response(produce, 9, connection.receive_frame() or b"")[1]
            assert answer.responses[0].partition_responses[0].error_code == 0


def test_kafka_loads_the_groups(apache_kafka: object, tmp_path: Path) -> None:
    with start_target(BRAIDLOG, tmp_path / "ours", SETTINGS) as ours:
        side = Side(ours)
        side.create("four", 4, {})
        side.create("two", 2, {})
        find_coordinator(ours.port, "any")
        casts = lived_through(side)
        expected = {cast.group: _known(cast) for cast in casts}
        data = offsets_log(side, 0)
    settings = {**SETTINGS, **KAFKA_SETTINGS}
    with start_target(KAFKA, tmp_path / "kafka", settings) as kafka:
        find_coordinator(kafka.port, "any")
        copy_into_kafka(data, kafka.port)
    with start_target(KAFKA, tmp_path / "kafka", settings) as kafka:
        loaded = Side(kafka)
        for cast in casts:
            cast.side = loaded
        eventually(lambda: casts[0].describe()[0][0] == 0)
        assert {cast.group: _known(cast) for cast in casts} == expected


def _known(cast: RawConsumerGroup) -> Any:
    """Without the partitions, whose topics only the first broker has."""
    head, members = cast.describe()
    return head, [member[:8] for member in members]
