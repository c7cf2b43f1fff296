"""Control requests survive the wire in every version, but for what the version cannot say.

The messages themselves are compared with Apache Kafka's bytes in tests/unit/wire/golden; kio knows none of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.cluster import control_wire as wire
from braidlog.cluster.control_requests import (
    ControlResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import BrokerInfo, PartitionInfo
from braidlog.core.protocol_errors import InvalidRequestError
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from braidlog.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from braidlog.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse
from braidlog.wire.generated.update_metadata import UpdateMetadataRequest
from braidlog.wire.message import ZERO_ID, Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer

T = TypeVar("T")
INTERNAL = "INTERNAL"

epochs = st.integers(0, 2**31 - 1)
broker_epochs = st.integers(-1, 2**62)
broker_ids = st.integers(0, 5).map(BrokerId)
replica_lists = st.lists(broker_ids, unique=True, max_size=3).map(tuple)
topics = st.sampled_from(["orders", "a", "日本語", "x" * 200])
topic_ids = {name: bytes([number + 1] * 16) for number, name in enumerate(["orders", "a", "日本語", "x" * 200])}


@st.composite
def infos(draw: st.DrawFn) -> PartitionInfo:
    return PartitionInfo(
        leader=BrokerId(draw(st.integers(-2, 5))),
        leader_epoch=LeaderEpoch(draw(epochs)),
        isr=draw(replica_lists),
        replicas=draw(replica_lists),
        adding=draw(replica_lists),
        removing=draw(replica_lists),
        controller_epoch=draw(epochs),
        partition_epoch=draw(epochs),
        leader_recovery_state=draw(st.integers(0, 1)),
        offline=draw(replica_lists),
    )


@st.composite
def brokers(draw: st.DrawFn) -> dict[BrokerId, BrokerInfo]:
    found = {}
    for broker_id in draw(st.lists(broker_ids, unique=True, max_size=3)):
        protocol = draw(st.sampled_from(wire.SECURITY_PROTOCOLS))
        endpoints = (Endpoint("PLAINTEXT", "host", 9092), Endpoint(INTERNAL, "::1", 19092))
        rack = draw(st.sampled_from([None, "r1"]))
        found[broker_id] = BrokerInfo(broker_id, -1, endpoints, {"PLAINTEXT": "PLAINTEXT", INTERNAL: protocol}, rack)
    return found


places = st.lists(st.tuples(topics, st.integers(0, 9)), unique=True, max_size=6).map(sorted)


def done(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def encoded(message: Message, version: int) -> bytes:
    w = Writer()
    message.encode(w, version)
    return w.getvalue()


@pytest.mark.parametrize("version", range(8))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_leader_and_isr(version: int, data: st.DataObject) -> None:
    partitions = [
        LeaderAndIsrPartition(topic, topic_ids[topic], partition, data.draw(infos()), data.draw(st.booleans()))
        for topic, partition in data.draw(places)
    ]
    sent = LeaderAndIsr(BrokerId(1), data.draw(epochs), data.draw(broker_epochs), partitions, data.draw(brokers()))
    written = encoded(wire.leader_and_isr_message(sent, version, INTERNAL), version)
    message = LeaderAndIsrRequest.decode(Reader(written), version)
    assert isinstance(message, LeaderAndIsrRequest)
    got = wire.read_leader_and_isr(message, INTERNAL)
    expected = [
        each._replace(
            topic_id=each.topic_id if version >= 5 else ZERO_ID,
            is_new=each.is_new and version >= 1,
            info=each.info._replace(
                offline=(),
                adding=each.info.adding if version >= 3 else (),
                removing=each.info.removing if version >= 3 else (),
                leader_recovery_state=each.info.leader_recovery_state if version >= 6 else 0,
            ),
        )
        for each in partitions
    ]
    assert list(got.partitions) == expected
    assert (got.controller_id, got.controller_epoch) == (sent.controller_id, sent.controller_epoch)
    assert got.broker_epoch == (sent.broker_epoch if version >= 2 else -1)
    assert {each.endpoint(INTERNAL) for each in got.leaders.values()} == {
        each.endpoint(INTERNAL) for each in sent.leaders.values()
    }

    answer = ControlResponse(0, {TopicPartition(each.topic, each.partition): 56 for each in partitions})
    reply = encoded(wire.leader_and_isr_response(message, answer, version), version)
    read = LeaderAndIsrResponse.decode(Reader(reply), version)
    assert wire.read_leader_and_isr_response(sent, read) == answer


@pytest.mark.parametrize("version", range(9))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_update_metadata(version: int, data: st.DataObject) -> None:
    partitions = [
        MetadataPartition(topic, topic_ids[topic], partition, data.draw(infos()))
        for topic, partition in data.draw(places)
    ]
    sent = UpdateMetadata(BrokerId(1), data.draw(epochs), data.draw(broker_epochs), data.draw(brokers()), partitions)
    once = done(wire.encode_update_metadata(sent, version))
    written = encoded(once, version)
    message = UpdateMetadataRequest.decode(Reader(written), version)
    assert encoded(message, version) == written
    got = done(wire.read_update_metadata(message, version))
    expected = [
        each._replace(
            topic_id=each.topic_id if version >= 7 else ZERO_ID,
            info=each.info._replace(
                adding=(), removing=(), leader_recovery_state=0, offline=each.info.offline if version >= 4 else ()
            ),
        )
        for each in partitions
    ]
    assert list(got.partitions) == expected
    assert got.broker_epoch == (sent.broker_epoch if version >= 5 else -1)
    if version >= 3:
        assert got.brokers == sent.brokers
    # For another broker only the epoch differs.
    other = encoded(once.for_broker(77), version)
    assert other == encoded(done(wire.encode_update_metadata(sent._replace(broker_epoch=77), version)), version)


@pytest.mark.parametrize("version", range(5))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_stop_replica(version: int, data: st.DataObject) -> None:
    partitions = [
        StopReplicaPartition(topic, partition, data.draw(st.integers(-2, 9)), data.draw(st.booleans()))
        for topic, partition in data.draw(places)
    ]
    sent = StopReplica(BrokerId(1), data.draw(epochs), data.draw(broker_epochs), partitions)
    got: list[StopReplicaPartition] = []
    answers = []
    for message in wire.stop_replica_messages(sent, version):
        written = encoded(message, version)
        read = wire.read_stop_replica(StopReplicaRequest.decode(Reader(written), version))
        assert read.broker_epoch == (sent.broker_epoch if version >= 1 else -1)
        got += read.partitions
        answer = ControlResponse(0, {TopicPartition(each.topic, each.partition): 3 for each in read.partitions})
        reply = encoded(wire.stop_replica_response(answer), version)
        answers.append(wire.read_stop_replica_response(StopReplicaResponse.decode(Reader(reply), version)))
    expected = [each if version >= 3 else each._replace(leader_epoch=-1) for each in partitions]
    assert sorted(got) == sorted(expected)
    assert wire.merged(answers).partitions == {TopicPartition(each.topic, each.partition): 3 for each in partitions}


def test_a_kraft_controller_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        wire.read_stop_replica(StopReplicaRequest(is_kraft_controller=True))
    with pytest.raises(InvalidRequestError):
        wire.read_leader_and_isr(LeaderAndIsrRequest(is_kraft_controller=True), INTERNAL)
    with pytest.raises(InvalidRequestError):
        done(wire.read_update_metadata(UpdateMetadataRequest(is_kraft_controller=True), 8))


def test_leader_and_isr_names_each_topic_once() -> None:
    info = PartitionInfo(BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),))
    apart = [LeaderAndIsrPartition(name, topic_ids[name], index, info) for index in (0, 1) for name in ("orders", "a")]
    message = wire.leader_and_isr_message(LeaderAndIsr(BrokerId(1), 1, 1, apart), 7, INTERNAL)
    named = [
        (topic.topic_name, [state.partition_index for state in topic.partition_states])
        for topic in message.topic_states
    ]
    assert named == [("orders", [0, 1]), ("a", [0, 1])]


def test_a_large_topic_is_encoded_and_read_with_rests_in_between() -> None:
    info = PartitionInfo(
        BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),), controller_epoch=1, partition_epoch=0
    )
    partitions = [MetadataPartition("a", topic_ids["a"], index, info) for index in range(1_700)]
    encoding = wire.encode_update_metadata(UpdateMetadata(BrokerId(1), 1, 1, {}, partitions), 8)
    assert len(list(iter(lambda: next(encoding, "done"), "done"))) >= 4
    once = done(wire.encode_update_metadata(UpdateMetadata(BrokerId(1), 1, 1, {}, partitions), 8))
    message = UpdateMetadataRequest.decode(Reader(encoded(once, 8)), 8)
    reading = wire.read_update_metadata(message, 8)
    assert len(list(iter(lambda: next(reading, "done"), "done"))) >= 4
    assert list(done(wire.read_update_metadata(message, 8)).partitions) == partitions
