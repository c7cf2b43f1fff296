"""Every attack by its name: what it needs on the broker, and the requests it is made of.

All requests are valid: each is one that an honest client might send, only more of it. Numbers are those at full size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from braidlog.wire.generated.alter_configs import AlterableConfig as LegacyConfig
from braidlog.wire.generated.alter_configs import AlterConfigsRequest
from braidlog.wire.generated.alter_configs import AlterConfigsResource as LegacyResource
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
from braidlog.wire.generated.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest
from braidlog.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
from braidlog.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from braidlog.wire.generated.describe_producers import DescribeProducersRequest
from braidlog.wire.generated.describe_producers import TopicRequest as ProducersOfTopic
from braidlog.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.generated.sync_group import SyncGroupRequest
from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_ZSTD
from braidlog.wire.records.builder import build_message_set
from braidlog.wire.records.reading import Record
from support.attacks.sending import Bursts, ByteByByte, Churn, Sender, Stalled, Unread
from support.attacks.target import TIMEOUT_MS, Target, batch_of, claimed_frame, frame, produce_request, tiny_records

MIB = 1 << 20
TOPIC_RESOURCE = 2
LATEST, EARLIEST = -1, -2
# The most that one request may have by default (socket.request.max.bytes).
LARGEST_FRAME = 100 * MIB


class Harm(Enum):
    MEMORY = "memory"
    TIME = "time"


@dataclass(frozen=True)
class Attack:
    """`prepare` makes what the attack needs on a broker and returns who carries it out."""

    name: str
    title: str
    harm: Harm
    prepare: Callable[[Target], Sender]


ATTACKS: dict[str, Attack] = {}


def _attack(title: str, harm: Harm = Harm.TIME) -> Callable[[Callable[[Target], Sender]], Callable[[Target], Sender]]:
    def register(prepare: Callable[[Target], Sender]) -> Callable[[Target], Sender]:
        name = prepare.__name__.replace("_", "-")
        ATTACKS[name] = Attack(name, title, harm, prepare)
        return prepare

    return register


def _repeated(request: bytes, count: int) -> Bursts:
    return Bursts([(request * count, count)])


def _one(request: bytes) -> Bursts:
    return Bursts([(request, 1)])


# Answers that nobody reads, and requests that nobody finishes


@_attack("2.2 million small Fetches, unread", Harm.MEMORY)
def unread_fetches(target: Target) -> Sender:
    topic = target.create_topic("unread-fetches")
    target.produce(topic, [(0, batch_of(tiny_records(1, bytes(100)), 1))])
    request = frame("Fetch", 11, _fetch(topic, [0], 1000))
    return Unread(request, target.scaled(2_200_000) * len(request))


@_attack("24 MB of Fetches of 20 KB each, read at a trickle", Harm.MEMORY)
def trickled_fetches(target: Target) -> Sender:
    topic = target.create_topic("trickled-fetches")
    target.produce(topic, [(0, batch_of(tiny_records(1, bytes(20_000)), 1))])
    return Unread(frame("Fetch", 11, _fetch(topic, [0], MIB)), target.scaled(24_000_000), trickle=True)


@_attack("24 MB of Metadata requests, unread", Harm.MEMORY)
def unread_metadata(target: Target) -> Sender:
    target.create_topics("unread-metadata", 5, 20)
    return Unread(frame("Metadata", 12, MetadataRequest(topics=None)), target.scaled(24_000_000))


@_attack("24 MB of ApiVersions requests, unread", Harm.MEMORY)
def unread_api_versions(target: Target) -> Sender:
    return Unread(frame("ApiVersions", 0, ApiVersionsRequest()), target.scaled(24_000_000))


@_attack("40 connections with Fetches of 1,000 partitions of 30 KB, unread", Harm.MEMORY)
def unread_wide_fetches(target: Target) -> Sender:
    partitions = target.scaled(1_000)
    topic = target.create_topic("unread-wide-fetches", partitions)
    batch = batch_of(tiny_records(1, bytes(30_000)), 1)
    for first in range(0, partitions, 100):
        target.produce(topic, [(index, batch) for index in range(first, min(first + 100, partitions))])
    request = frame("Fetch", 11, _fetch(topic, list(range(partitions)), MIB))
    return Unread(request, 5 * len(request), 40)


@_attack("300 connections with 80 kB of Metadata requests each, unread", Harm.MEMORY)
def unread_connections(target: Target) -> Sender:
    target.create_topics("unread-connections", 5, 20)
    return Unread(frame("Metadata", 12, MetadataRequest(topics=None)), 80_000, target.scaled(300))


@_attack("200 connections that claim 100 MB, send 2 MB and stall", Harm.MEMORY)
def stalled_frames(target: Target) -> Sender:
    return Stalled(claimed_frame(LARGEST_FRAME, 2_000_000), target.scaled(200))


@_attack("500 connections that claim 100 MB and send 100 bytes", Harm.MEMORY)
def claimed_frames(target: Target) -> Sender:
    return Stalled(claimed_frame(LARGEST_FRAME, 100), target.scaled(500))


@_attack("20 connections that each pipeline five frames of 30 MB", Harm.MEMORY)
def large_frames(target: Target) -> Sender:
    # Records of a partition that does not exist: the frame is taken and decoded whole, and then refused.
    target.create_topic("large-frames")
    request = frame("Produce", 9, produce_request("large-frames", [(99, bytes(target.scaled(30) * MIB))]))
    return Unread(request, 5 * len(request), 20)


def _fetch(topic: str, partitions: list[int], most_bytes: int) -> FetchRequest:
    wanted = [FetchPartition(partition=index, partition_max_bytes=most_bytes) for index in partitions]
    return FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=topic, partitions=wanted)])


# Very many requests at once


@_attack("2,400 pipelined Metadata")
def pipelined_metadata(target: Target) -> Sender:
    names = target.create_topics("pipelined-metadata", 5, 20)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return _repeated(frame("Metadata", 12, request), target.scaled(2_400))


@_attack("pipelined ApiVersions without end")
def pipelined_api_versions(target: Target) -> Sender:
    return _repeated(frame("ApiVersions", 0, ApiVersionsRequest()), target.scaled(20_000))


@_attack("pipelined Produces of one record without end")
def pipelined_produces(target: Target) -> Sender:
    topic = target.create_topic("pipelined-produces")
    return _repeated(
        frame("Produce", 9, produce_request(topic, [(0, batch_of(tiny_records(1), 1))])), target.scaled(20_000)
    )


@_attack("20,000 JoinGroups of as many groups, pipelined")
def join_groups(target: Target) -> Sender:
    target.await_coordinator()
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    requests = [
        frame(
            "JoinGroup",
            9,
            JoinGroupRequest(
                group_id=f"attacked-{number}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[protocol],
            ),
        )
        for number in range(target.scaled(20_000))
    ]
    return Bursts([(b"".join(requests), len(requests))])


@_attack("20,000 SyncGroups of unknown members, pipelined")
def sync_groups(target: Target) -> Sender:
    target.await_coordinator()
    request = SyncGroupRequest(group_id="attacked", generation_id=1, member_id="nobody", protocol_type="consumer")
    return _repeated(frame("SyncGroup", 5, request), target.scaled(20_000))


@_attack("requests that come byte by byte on 50 connections")
def bytes_one_by_one(target: Target) -> Sender:
    return ByteByByte(frame("ApiVersions", 0, ApiVersionsRequest()), 50)


@_attack("connections opened and closed without end")
def connection_churn(target: Target) -> Sender:
    return Churn(frame("ApiVersions", 0, ApiVersionsRequest()), 50)


# Very many names in one request


@_attack("DescribeConfigs that names one topic 20,000 times")
def describe_configs_repeated(target: Target) -> Sender:
    topic = target.create_topic("describe-configs")
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    return _one(frame("DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource] * target.scaled(20_000))))


@_attack("DescribeConfigs of 20,000 topics that do not exist")
def describe_configs_unknown(target: Target) -> Sender:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=f"unknown-{number}")
        for number in range(target.scaled(20_000))
    ]
    return _one(frame("DescribeConfigs", 4, DescribeConfigsRequest(resources=resources)))


@_attack("Metadata that names a topic of 2,000 partitions 500 times")
def metadata_repeated(target: Target) -> Sender:
    topic = target.create_topic("metadata-repeated", target.scaled(2_000))
    named = [MetadataRequestTopic(name=topic)] * 500
    return _one(frame("Metadata", 12, MetadataRequest(topics=named, allow_auto_topic_creation=False)))


@_attack("Metadata of 100,000 names that do not exist")
def metadata_unknown(target: Target) -> Sender:
    named = [MetadataRequestTopic(name=f"unknown-{number}") for number in range(target.scaled(100_000))]
    return _one(frame("Metadata", 12, MetadataRequest(topics=named, allow_auto_topic_creation=False)))


@_attack("pipelined Metadata of a topic of 2,000 partitions")
def metadata_wide(target: Target) -> Sender:
    topic = target.create_topic("metadata-wide", target.scaled(2_000))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return _repeated(frame("Metadata", 12, request), 100)


@_attack("Fetch that names one partition 100,000 times")
def fetch_repeated(target: Target) -> Sender:
    topic = target.create_topic("fetch-repeated")
    return _one(frame("Fetch", 11, _fetch(topic, [0] * target.scaled(100_000), 1000)))


@_attack("Fetch of 100,000 partitions that do not exist")
def fetch_unknown(target: Target) -> Sender:
    topic = target.create_topic("fetch-unknown")
    return _one(frame("Fetch", 11, _fetch(topic, list(range(1, 1 + target.scaled(100_000))), 1000)))


@_attack("Produce to 100,000 partitions that do not exist")
def produce_unknown(target: Target) -> Sender:
    topic = target.create_topic("produce-unknown")
    batch = batch_of(tiny_records(1), 1)
    count = target.scaled(100_000)
    return _one(frame("Produce", 9, produce_request(topic, [(index, batch) for index in range(1, 1 + count)])))


@_attack("ListOffsets that names one partition 100,000 times")
def list_offsets_repeated(target: Target) -> Sender:
    topic = target.create_topic("list-offsets-repeated")
    asked = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)] * target.scaled(100_000)
    return _one(frame("ListOffsets", 7, _list_offsets(topic, asked)))


@_attack("ListOffsets of 100,000 partitions that do not exist")
def list_offsets_unknown(target: Target) -> Sender:
    topic = target.create_topic("list-offsets-unknown")
    count = target.scaled(100_000)
    asked = [ListOffsetsPartition(partition_index=index, timestamp=EARLIEST) for index in range(1, 1 + count)]
    return _one(frame("ListOffsets", 7, _list_offsets(topic, asked)))


def _list_offsets(topic: str, partitions: list[ListOffsetsPartition]) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])


@_attack("OffsetForLeaderEpoch that names one partition 100,000 times")
def leader_epochs(target: Target) -> Sender:
    topic = target.create_topic("leader-epochs")
    asked = [OffsetForLeaderPartition(partition=0, leader_epoch=0)] * target.scaled(100_000)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=asked)])
    return _one(frame("OffsetForLeaderEpoch", 4, request))


@_attack("OffsetFetch that names one partition 100,000 times")
def offset_fetch_repeated(target: Target) -> Sender:
    target.await_coordinator()
    named = [OffsetFetchRequestTopic(name="t", partition_indexes=[0] * target.scaled(100_000))]
    return _one(frame("OffsetFetch", 7, OffsetFetchRequest(group_id="attacked", topics=named)))


@_attack("OffsetFetch of 20,000 groups")
def offset_fetch_groups(target: Target) -> Sender:
    target.await_coordinator()
    named = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [
        OffsetFetchRequestGroup(group_id=f"attacked-{number}", topics=named) for number in range(target.scaled(20_000))
    ]
    return _one(frame("OffsetFetch", 8, OffsetFetchRequest(groups=groups)))


@_attack("OffsetCommit of 20,000 partitions")
def offset_commit_wide(target: Target) -> Sender:
    target.await_coordinator()
    target.create_topic("offset-commit", 100)
    parts = [
        OffsetCommitRequestPartition(partition_index=number % 100, committed_offset=number)
        for number in range(target.scaled(20_000))
    ]
    request = OffsetCommitRequest(
        group_id="attacked-commit", topics=[OffsetCommitRequestTopic(name="offset-commit", partitions=parts)]
    )
    return _one(frame("OffsetCommit", 8, request))


@_attack("FindCoordinator of 50,000 groups")
def find_coordinator(target: Target) -> Sender:
    target.await_coordinator()
    keys = [f"attacked-{number}" for number in range(target.scaled(50_000))]
    return _one(frame("FindCoordinator", 4, FindCoordinatorRequest(key_type=0, coordinator_keys=keys)))


@_attack("DescribeGroups of 50,000 groups that do not exist")
def describe_groups(target: Target) -> Sender:
    target.await_coordinator()
    names = [f"unknown-{number}" for number in range(target.scaled(50_000))]
    return _one(frame("DescribeGroups", 5, DescribeGroupsRequest(groups=names)))


@_attack("DeleteGroups of 50,000 groups that do not exist")
def delete_groups(target: Target) -> Sender:
    target.await_coordinator()
    names = [f"unknown-{number}" for number in range(target.scaled(50_000))]
    return _one(frame("DeleteGroups", 2, DeleteGroupsRequest(groups_names=names)))


@_attack("DescribeLogDirs that names one partition 100,000 times")
def describe_log_dirs(target: Target) -> Sender:
    topic = target.create_topic("describe-log-dirs")
    named = [DescribableLogDirTopic(topic=topic, partitions=[0] * target.scaled(100_000))]
    return _one(frame("DescribeLogDirs", 4, DescribeLogDirsRequest(topics=named)))


@_attack("DescribeTopicPartitions of 50,000 names that do not exist")
def describe_topic_partitions(target: Target) -> Sender:
    named = [TopicRequest(name=f"unknown-{number}") for number in range(target.scaled(50_000))]
    return _one(frame("DescribeTopicPartitions", 0, DescribeTopicPartitionsRequest(topics=named)))


@_attack("DescribeProducers that names one partition 100,000 times")
def describe_producers(target: Target) -> Sender:
    topic = target.create_topic("describe-producers")
    named = [ProducersOfTopic(name=topic, partition_indexes=[0] * target.scaled(100_000))]
    return _one(frame("DescribeProducers", 0, DescribeProducersRequest(topics=named)))


@_attack("DeleteRecords that names one partition 100,000 times")
def delete_records(target: Target) -> Sender:
    topic = target.create_topic("delete-records")
    asked = [DeleteRecordsPartition(partition_index=0, offset=0)] * target.scaled(100_000)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=asked)], timeout_ms=TIMEOUT_MS)
    return _one(frame("DeleteRecords", 2, request))


@_attack("CreateTopics of 9,000 topics, validated only")
def create_topics_validated(target: Target) -> Sender:
    # Kafka's controller does at most 10,000 records a request.
    topics = [
        CreatableTopic(name=f"validated-{number}", num_partitions=1, replication_factor=1)
        for number in range(target.scaled(9_000))
    ]
    return _one(frame("CreateTopics", 5, CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=True)))


@_attack("IncrementalAlterConfigs of 20,000 topics that do not exist")
def incremental_alter_configs(target: Target) -> Sender:
    change = AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    resources = [
        AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=f"unknown-{number}", configs=[change])
        for number in range(target.scaled(20_000))
    ]
    return _one(frame("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=resources)))


@_attack("AlterConfigs of 2,000 topics")
def alter_configs(target: Target) -> Sender:
    names = target.create_topics("alter-configs", target.scaled(2_000), 1)
    bursts = []
    for value in ("1000000", "2000000"):
        change = LegacyConfig(name="retention.ms", value=value)
        resources = [
            LegacyResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[change]) for name in names
        ]
        bursts.append((frame("AlterConfigs", 2, AlterConfigsRequest(resources=resources)), 1))
    return Bursts(bursts)


# Changes of many partitions


@_attack("DeleteTopics of 5,000 partitions")
def delete_topics(target: Target) -> Sender:
    names = target.create_topics("delete-topics", 10, target.scaled(500))
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)
    return Bursts([(frame("DeleteTopics", 5, request), 1)], once=True)


@_attack("CreateTopics of 5,000 partitions")
def create_topics(target: Target) -> Sender:
    topics = [
        CreatableTopic(name=f"create-topics-{number}", num_partitions=target.scaled(500), replication_factor=1)
        for number in range(10)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    return Bursts([(frame("CreateTopics", 5, request), 1)], once=True)


@_attack("CreatePartitions by 5,000")
def create_partitions(target: Target) -> Sender:
    names = target.create_topics("create-partitions", 10, 1)
    grown = [CreatePartitionsTopic(name=name, count=1 + target.scaled(500), assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=grown, timeout_ms=TIMEOUT_MS)
    return Bursts([(frame("CreatePartitions", 2, request), 1)], once=True)


# Records that are small on the wire and large once they are opened


@_attack("a Produce of 50 zstd bombs in 73 KB")
def zstd_bombs(target: Target) -> Sender:
    topic = target.create_topic("zstd-bombs", 50)
    bomb = batch_of(bytes(target.scaled(40) * MIB), 1, CODEC_ZSTD)
    return _one(frame("Produce", 9, produce_request(topic, [(index, bomb) for index in range(50)])))


@_attack("a gzip bomb of zeros, max.message.bytes 64 MiB")
def gzip_bomb_of_zeros(target: Target) -> Sender:
    topic = target.create_topic("gzip-zeros", max_message_bytes=str(64 * MIB))
    bomb = batch_of(bytes(target.scaled(512) * MIB), 1, CODEC_GZIP)
    return _one(frame("Produce", 9, produce_request(topic, [(0, bomb)])))


@_attack("a gzip bomb of 4 million records, max.message.bytes 64 MiB")
def gzip_bomb_of_records(target: Target) -> Sender:
    topic = target.create_topic("gzip-records", max_message_bytes=str(64 * MIB))
    count = target.scaled(4_000_000)
    return _one(frame("Produce", 9, produce_request(topic, [(0, batch_of(tiny_records(count), count, CODEC_GZIP))])))


@_attack("Produce to a topic that is compressed anew: 80,000 records, lz4 to gzip")
def recompression(target: Target) -> Sender:
    topic = target.create_topic("recompression", compression_type="gzip", max_message_bytes=str(8 * MIB))
    count = target.scaled(80_000)
    return _one(frame("Produce", 9, produce_request(topic, [(0, batch_of(tiny_records(count), count, CODEC_LZ4))])))


@_attack("Produce of 20,000 messages in format 1")
def up_conversion(target: Target) -> Sender:
    topic = target.create_topic("up-conversion", max_message_bytes=str(8 * MIB))
    messages = build_message_set([Record(value=b"v", timestamp=1)] * target.scaled(20_000), magic=1)
    data = PartitionProduceData(index=0, records=messages)
    request = ProduceRequest(
        acks=1, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return _one(frame("Produce", 2, request))


@_attack("Fetch v2 of batches with 100,000 records each: converted down")
def down_conversion(target: Target) -> Sender:
    topic = _opened_slowly(target, "down-conversion")
    wanted = [FetchPartition(partition=0, partition_max_bytes=4 * MIB)]
    request = FetchRequest(replica_id=-1, topics=[FetchTopic(topic=topic, partitions=wanted)])
    return _one(frame("Fetch", 2, request))


@_attack("200 ListOffsets by timestamp into batches with 100,000 records each")
def timestamp_lookups(target: Target) -> Sender:
    topic = _opened_slowly(target, "timestamp-lookups")
    request = _list_offsets(topic, [ListOffsetsPartition(partition_index=0, timestamp=1)])
    return _repeated(frame("ListOffsets", 7, request), target.scaled(200))


def _opened_slowly(target: Target, topic: str) -> str:
    """A topic with a few gzip batches of very many records."""
    target.create_topic(topic, max_message_bytes=str(8 * MIB))
    count = target.scaled(100_000)
    batch = batch_of(tiny_records(count), count, CODEC_GZIP)
    for _ in range(5):
        target.produce(topic, [(0, batch)])
    return topic
