"""Produce and Fetch requests that take long: the same answers as ever, in order, without holding the loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.handlers.records.produce import MOST_WORK
from braidlog.config.log_settings import LogSettings
from braidlog.core.protocol_errors import CorruptMessageError, TopicAuthorizationFailedError
from braidlog.net.channel import ANONYMOUS
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.compression import compress
from braidlog.wire.records.encoding import encode_header
from braidlog.wire.records.reading import Record, read_records
from support.authorized_broker import CountingAuthorizer, UnaskedAuthorizer, allow
from support.data_path import START_MS, DataPath, Peer
from support.produced_records import produce

LARGE = LogSettings(max_message_bytes=64 << 20)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path, LARGE)
    yield made
    made.close()


def large_batch(codec: int, value: bytes = bytes(MOST_WORK)) -> bytes:
    records = [Record(timestamp=START_MS + number, key=b"k", value=value) for number in range(8)]
    return build_batch(records, codec=codec)


def small_batch(text: bytes) -> bytes:
    return build_batch([Record(timestamp=START_MS, key=text, value=text)])


def content(world: DataPath, partition: int) -> list[Record]:
    log = world.log(partition)
    read = log.read(0, 1 << 30, log.log_end_offset, True)
    assert read.slice is not None
    return read_records(read.slice.read())


@pytest.mark.parametrize("codec", [CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD])
def test_records_that_take_long_to_unpack_are_appended_like_others(world: DataPath, codec: int) -> None:
    peer = Peer(world)
    peer.call(0, 11, produce([(0, small_batch(b"before"))]))
    peer.ask(0, 11, produce([(0, large_batch(codec)), (1, small_batch(b"second"))]))
    assert peer.muted, "its next requests must not overtake this one"
    peer.ask(0, 11, produce([(0, small_batch(b"after"))]))
    world.steps.run()
    first, second = peer.answers
    assert isinstance(first, ProduceResponse)
    assert isinstance(second, ProduceResponse)
    assert [each.base_offset for each in first.responses[0].partition_responses] == [1, 0]
    assert [each.base_offset for each in second.responses[0].partition_responses] == [9]
    records = content(world, 0)
    assert [record.offset for record in records] == list(range(10))
    assert [records[0].value, records[9].value] == [b"before", b"after"]
    assert {record.value for record in records[1:9]} == {bytes(MOST_WORK)}
    assert [record.value for record in content(world, 1)] == [b"second"]
    assert not peer.muted
    assert world.memory.conversions.used == 0


def test_the_work_of_a_request_counts_in_all_not_by_batch(world: DataPath) -> None:
    """Each of these alone would be unpacked on the loop."""
    value = bytes(MOST_WORK // 3)
    batch = build_batch([Record(timestamp=START_MS, key=b"k", value=value)], codec=CODEC_SNAPPY)
    peer = Peer(world)
    peer.ask(0, 11, produce([(0, batch)] * 2))
    assert not peer.muted
    peer.ask(0, 11, produce([(0, batch)] * 4))
    assert peer.muted
    world.steps.run()
    assert [record.offset for record in content(world, 0)] == list(range(6))


def test_a_bomb_is_refused_and_its_neighbours_are_appended(world: DataPath) -> None:
    world.handler_pool._memory.limit = 8 << 20
    peer = Peer(world)
    bomb = large_batch(CODEC_ZSTD)
    answer = peer.call(0, 11, produce([(0, small_batch(b"a")), (0, bomb), (0, small_batch(b"b"))]))
    assert isinstance(answer, ProduceResponse)
    responses = answer.responses[0].partition_responses
    assert [each.error_code for each in responses] == [0, CorruptMessageError.code, 0]
    assert [record.value for record in content(world, 0)] == [b"a", b"b"]


def test_what_is_wrong_with_long_records_is_told_as_ever(world: DataPath) -> None:
    batch = bytearray(large_batch(CODEC_LZ4))
    batch[20] ^= 1
    answer = Peer(world).call(0, 11, produce([(0, bytes(batch))]))
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == CorruptMessageError.code
    assert world.log().log_end_offset == 0


def test_records_of_a_producer_that_has_gone_are_appended(world: DataPath) -> None:
    """With acks=0 a program may end as soon as it has sent."""
    peer = Peer(world)
    request = produce([(0, large_batch(CODEC_ZSTD)), (1, small_batch(b"x"))])
    request.acks = 0
    peer.ask(0, 11, request)
    peer.close("gone")
    world.steps.run()
    assert (world.log(0).log_end_offset, world.log(1).log_end_offset) == (8, 1)


def test_a_request_of_very_many_partitions_lets_others_in_between(world: DataPath) -> None:
    peer = Peer(world)
    peer.ask(0, 11, produce([(number % 2, small_batch(b"%d" % number)) for number in range(1000)]))
    assert peer.muted
    assert world.log(0).next_offset < 500
    world.steps.run()
    (answer,) = peer.answers
    assert isinstance(answer, ProduceResponse)
    offsets = [each.base_offset for each in answer.responses[0].partition_responses]
    assert offsets == [number // 2 for number in range(1000)]
    assert [record.value for record in content(world, 1)] == [b"%d" % number for number in range(1, 1000, 2)]


def test_broken_compressed_records_are_refused_without_being_unpacked_on_the_loop(world: DataPath) -> None:
    block = bytes(compress(CODEC_SNAPPY, bytes(1 << 15)))
    body = block * 1 + (0).to_bytes(4, "big")
    batch = encode_header(body, 0, -1, CODEC_SNAPPY, 0, START_MS, START_MS, -1, -1, -1, 1) + body
    peer = Peer(world)
    peer.ask(0, 11, produce([(0, batch)]))
    assert peer.muted
    world.steps.run()
    (answer,) = peer.answers
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == CorruptMessageError.code


# Access


def produce_to(topics: dict[str, int], acks: int = -1) -> ProduceRequest:
    """One record to each of so many partitions of the topics."""
    data = [
        TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=i, records=small_batch(b"x")) for i in range(count)]
        )
        for name, count in topics.items()
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)


def test_topics_are_decided_about_once_each_and_only_what_is_allowed_is_written(tmp_path: Path) -> None:
    authorizer = CountingAuthorizer(allow(AclResourceType.TOPIC, "orders", AclOperation.WRITE, ANONYMOUS))
    world = DataPath(tmp_path, authorizer=authorizer)
    other = world.add_partition("payments", 0, b"p" * 16)
    response = Peer(world).call(0, 11, produce_to({"payments": 3, "orders": 2, "unknown": 1}))
    assert isinstance(response, ProduceResponse)
    codes = {topic.name: [each.error_code for each in topic.partition_responses] for topic in response.responses}
    refused = TopicAuthorizationFailedError.code
    assert codes == {"payments": [refused] * 3, "orders": [0, 0], "unknown": [refused]}
    assert (world.log(0).log_end_offset, other.require_log().log_end_offset) == (1, 0)
    asked = sorted(authorizer.asked)
    assert asked == [(AclOperation.WRITE, name) for name in ("orders", "payments", "unknown")]
    world.close()


def test_a_refused_produce_with_acks_of_0_closes_the_connection(tmp_path: Path) -> None:
    world = DataPath(tmp_path, authorizer=CountingAuthorizer())
    peer = Peer(world)
    peer.ask(0, 11, produce_to({"orders": 1}, acks=0))
    world.steps.run()
    assert peer.closed
    assert world.log(0).log_end_offset == 0
    world.close()


def test_without_rules_nobody_is_asked(tmp_path: Path) -> None:
    world = DataPath(tmp_path, authorizer=UnaskedAuthorizer())
    response = Peer(world).call(0, 11, produce_to({"orders": 2}))
    assert isinstance(response, ProduceResponse)
    assert [each.error_code for each in response.responses[0].partition_responses] == [0, 0]
    world.close()
