"""What an attack is prepared against: encoded requests, topics, and record batches that are small only on the wire."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any

from braidlog.wire.apis import api_by_name, encode_request
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest
from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.metadata import MetadataRequest
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.message import Message
from braidlog.wire.records.batch import CODEC_NONE
from braidlog.wire.records.compression import compress
from braidlog.wire.records.encoding import encode_header
from support.raw import RawConnection

EARLIEST = -2
TIMEOUT_MS = 120_000
DEADLINE_S = 120.0
# No more partitions than this in one request of the preparation: what makes them is not what is measured.
PARTITIONS_AT_ONCE = 500
# UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, and the same three of coordinators.
NOT_YET = (3, 5, 6, 14, 15, 16)


def frame(name: str, version: int, request: Message) -> bytes:
    """A whole request, its size first."""
    written = encode_request(api_by_name(name).key, version, 7, "attacker", request)
    return b"".join(bytes(part) for part in written.parts())


def produce_request(topic: str, batches: Iterable[tuple[int, bytes]], acks: int = 1) -> ProduceRequest:
    """Each batch with its partition."""
    data = [PartitionProduceData(index=partition, records=records) for partition, records in batches]
    return ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def batch_of(contents: bytes, count: int, codec: int = CODEC_NONE) -> bytes:
    """A v2 batch of `count` records that are already encoded, one after another."""
    body = compress(codec, contents)
    now = int(time.time() * 1000)
    return encode_header(body, 0, -1, codec, count - 1, now, now, -1, -1, -1, count) + body


def tiny_records(count: int, value: bytes = b"") -> bytes:
    """Records of ten bytes or so: no key, the given value, the time of the batch; their offsets count from zero."""
    tail = b"\x01" + _varint(len(value)) + value + b"\x00"
    written = []
    for offset in range(count):
        body = b"\x00\x00" + _varint(offset) + tail
        written.append(_varint(len(body)) + body)
    return b"".join(written)


def _varint(value: int) -> bytes:
    """Zigzag, of a number that is not negative."""
    rest = value << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Target:
    """A broker and how hard it is to be hit: `scale` 1 is the full size of an attack."""

    def __init__(self, port: int, scale: float = 1.0) -> None:
        self.port = port
        self.scale = scale
        self._connection: RawConnection | None = None

    def scaled(self, full: int) -> int:
        return max(1, round(full * self.scale))

    def ask(self, name: str, version: int, request: Message) -> Any:
        if self._connection is None:
            self._connection = RawConnection(self.port)
        return self._connection.ask(name, version, request)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> str:
        """A topic whose partitions all serve; one that is there already is taken as it is."""
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
        answer = self.ask("CreateTopics", 5, CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
        assert answer.topics[0].error_code in (0, 36), f"{topic}: {answer.topics[0].error_message}"
        self._await_leaders(topic, partitions)
        return topic

    def create_topics(self, prefix: str, topics: int, partitions: int) -> list[str]:
        """Many topics of so many partitions each, made in small requests."""
        names = [f"{prefix}-{number}" for number in range(topics)]
        step = max(1, PARTITIONS_AT_ONCE // partitions)
        for first in range(0, topics, step):
            wanted = [
                CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
                for name in names[first : first + step]
            ]
            answer = self.ask("CreateTopics", 5, CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS))
            assert all(topic.error_code in (0, 36) for topic in answer.topics), answer.topics[0].error_message
        for name in names:
            self._await_leaders(name, partitions)
        return names

    def delete_topics_but(self, kept: set[str]) -> None:
        """Every topic except these and the internal ones, one at a time."""
        answer = self.ask("Metadata", 12, MetadataRequest(topics=None))
        for topic in answer.topics:
            if not topic.is_internal and topic.name not in kept:
                self.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=TIMEOUT_MS))

    def _await_leaders(self, topic: str, partitions: int) -> None:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=EARLIEST) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
        self._until_served(topic, lambda: self._codes_of_list_offsets(request))

    def _codes_of_list_offsets(self, request: ListOffsetsRequest) -> set[int]:
        answer = self.ask("ListOffsets", 5, request)
        return {partition.error_code for topic in answer.topics for partition in topic.partitions}

    def _until_served(self, topic: str, ask: Any) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while (codes := ask()) != {0}:
            assert codes <= {0, *NOT_YET}, f"{topic}: error codes {codes}"
            assert time.monotonic() < deadline, f"{topic} has partitions that do not serve: {codes}"
            time.sleep(0.02)  # nothing tells when a leader is ready but asking

    def await_coordinator(self) -> None:
        """Until every shard of the groups answers: the first who asks makes their topic."""
        groups = [f"probe-{number}" for number in range(500)]

        def ask() -> set[int]:
            self.ask("FindCoordinator", 3, FindCoordinatorRequest(key="probe", key_type=0))
            answer = self.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=groups))
            return {group.error_code for group in answer.groups}

        self._until_served("__consumer_offsets", ask)

    def produce(self, topic: str, batches: Sequence[tuple[int, bytes]], version: int = 9) -> None:
        request = produce_request(topic, batches)

        def ask() -> set[int]:
            answer = self.ask("Produce", version, request)
            return {done.error_code for item in answer.responses for done in item.partition_responses}

        self._until_served(topic, ask)


def claimed_frame(size: int, sent: int) -> bytes:
    """The beginning of a Produce that says it has `size` bytes, of which `sent` come."""
    start = struct.pack(">ihhih", size, 0, 9, 7, 8) + b"attacker" + b"\x00"
    return start + bytes(sent - len(start))
