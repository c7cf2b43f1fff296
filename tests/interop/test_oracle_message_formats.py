"""The same requests to Apache Kafka 3.9 and to us, both with inter.broker.protocol.version=2.8 and an old format.

On ZooKeeper, as KRaft knows no such protocol version. A compressed set is compressed anew by another library here than
there: of those the messages are compared, of all others the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS, start_kafka_with_zookeeper, start_zookeeper

from braidlog.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from braidlog.wire.message import Message
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record, read_records
from support.broker import KAFKA, Broker, start_braidlog
from support.eventually import eventually
from support.fetching import fetch_request
from support.oracle import TIMESTAMP_MS, Pair, Side, unlike
from support.raw import as_plain

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

FORMATS = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"}
ONE_OF_EACH = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
# By magic the version of Produce that a client of that time sends.
PRODUCE = {0: 1, 1: 2, 2: 9}
# As topics say it; the broker's own is format 1.
TOPIC_FORMATS = {"0.9.0": 0, "0.10.0": 1, "0.11.0": 2, "2.8": 2, "3.0": 2}


@pytest.fixture(scope="module")
def pair(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("formats")
    settings = {**FORMATS, **ONE_OF_EACH}
    with (
        start_zookeeper(place / "zookeeper") as zookeeper,
        start_kafka_with_zookeeper(place / "kafka", zookeeper, 0, settings) as kafka,
        start_braidlog(place / "ours", {"broker.id": "1", **SHIPPED_SETTINGS, **settings}) as ours,
    ):
        yield Pair(Side(Broker(KAFKA, kafka.process, kafka.port, place / "kafka")), Side(ours))


def records(count: int = 5) -> list[Record]:
    return [Record(timestamp=TIMESTAMP_MS + n, key=b"k%d" % n, value=b"value %d " % n * 10) for n in range(count)]


def produced(magic: int, codec: int = 0, some: list[Record] | None = None) -> bytes:
    content = records() if some is None else some
    return build_batch(content, codec=codec) if magic == 2 else build_message_set(content, magic=magic, codec=codec)


def send(pair: Pair, topic: str, data: bytes, version: int = 9) -> Any:
    """Both answers, which must be alike; Kafka's is returned."""
    answers = [side.normal(side.produce(topic, data, version)) for side in pair.sides]
    assert unlike(*answers) == []
    return answers[0]["responses"][0]["partition_responses"][0]


def stored(side: Side, topic: str) -> bytes:
    """What is in the log: of these fetch versions nothing is converted."""
    answer: Any = as_plain(side.ask("Fetch", 12, fetch_request(side, 12, topic, 0)))
    return bytes(answer["responses"][0]["partitions"][0]["records"] or b"")


def shape(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """What the headers say, but for sizes and checksums."""
    return [
        (header.magic, header.last_offset, header.attributes, header.max_timestamp, header.leader_epoch)
        for header in iterate_headers(data, 0, len(data))
    ]


def compare_stored(pair: Pair, topic: str, *, same_bytes: bool) -> list[int]:
    """The magics of what both have, which is alike."""
    theirs, ours = (stored(side, topic) for side in pair.sides)
    assert shape(ours) == shape(theirs)
    assert read_records(ours) == read_records(theirs)
    if same_bytes:
        assert ours == theirs
    return [magic for magic, *_ in shape(theirs)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", PRODUCE)
@pytest.mark.parametrize("version", TOPIC_FORMATS)
def test_what_is_stored(pair: Pair, version: str, magic: int, codec: str) -> None:
    topic = f"stored-{version}-{magic}-{codec}"
    pair.create(topic, message_format_version=version)
    for _ in range(2):
        send(pair, topic, produced(magic, CODECS[codec]), PRODUCE[magic])
    found = compare_stored(pair, topic, same_bytes=codec == "none")
    assert set(found) == {TOPIC_FORMATS[version]}


def test_the_brokers_own_format_is_that_of_topics_that_set_none(pair: Pair) -> None:
    pair.create("inherits")
    send(pair, "inherits", produced(2))
    assert set(compare_stored(pair, "inherits", same_bytes=True)) == {1}


@pytest.mark.parametrize("target", ["gzip", "lz4", "uncompressed"])
def test_compression_of_the_topic(pair: Pair, target: str) -> None:
    for version in ("0.9.0", "0.10.2"):
        for codec in ("none", "gzip"):
            topic = f"compression-{target}-{version}-{codec}"
            pair.create(topic, message_format_version=version, compression_type=target)
            for magic in (0, 1, 2):
                send(pair, topic, produced(magic, CODECS[codec]), PRODUCE[magic])
            compare_stored(pair, topic, same_bytes=target == "uncompressed")


REFUSED: dict[str, bytes] = {
    "idempotent": build_batch(records(), producer_id=5, producer_epoch=0, base_sequence=0),
    "transactional": build_batch(records(), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
    "control": build_batch(records(1), control=True),
    "late timestamp": build_batch([Record(timestamp=TIMESTAMP_MS + 10**12, value=b"v")]),
    "sequence without id": build_batch(records(), base_sequence=3),
    "over the limit": build_batch([Record(timestamp=TIMESTAMP_MS, value=b"x" * 2_000_000)]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(pair: Pair, case: str) -> None:
    for version in ("0.9.0", "0.10.2"):
        topic = f"refusals-{case.replace(' ', '-')}-{version}"
        pair.create(topic, message_format_version=version)
        send(pair, topic, REFUSED[case])
        compare_stored(pair, topic, same_bytes=True)


def test_zstd_and_headers_are_refused_where_kafka_stumbles(pair: Pair) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR to both; here the code says what is wrong."""
    pair.create("not-in-format-1")
    with_headers = [Record(timestamp=TIMESTAMP_MS, value=b"v", headers=(("name", b"value"),))]
    for data, code in ((build_batch(records(), codec=4), 76), (build_batch(with_headers), 43)):
        theirs, ours = (as_plain(side.produce("not-in-format-1", data)) for side in pair.sides)
        assert theirs["responses"][0]["partition_responses"][0]["error_code"] == -1
        assert ours["responses"][0]["partition_responses"][0]["error_code"] == code
    assert compare_stored(pair, "not-in-format-1", same_bytes=True) == []


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_the_brokers_time(pair: Pair, version: str) -> None:
    """Each has its own, so only the shape is compared; format 0 has no place for it."""
    topic = f"append-time-{version}"
    pair.create(topic, message_format_version=version, message_timestamp_type="LogAppendTime")
    for codec in ("none", "gzip"):
        for side in pair.sides:
            answer: Any = as_plain(side.produce(topic, produced(2, CODECS[codec])))
            assert answer["responses"][0]["partition_responses"][0]["log_append_time_ms"] > TIMESTAMP_MS
    theirs, ours = (stored(side, topic) for side in pair.sides)
    kept = [(magic, offset, attributes) for magic, offset, attributes, *_ in shape(theirs)]
    assert [(magic, offset, attributes) for magic, offset, attributes, *_ in shape(ours)] == kept
    stamped = version != "0.9.0"
    for data in (theirs, ours):
        assert {record.timestamp > TIMESTAMP_MS for record in read_records(data)} == {stamped}


def test_changes_count_for_what_comes_then(pair: Pair) -> None:
    pair.create("changing")
    seen = []
    for value in ("0.11.0", "0.9.0", "0.10.2", "2.8"):
        change = AlterableConfig(name="message.format.version", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="changing", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        pair.compare("IncrementalAlterConfigs", 1, request)
        for side in pair.sides:
            _until_described(side, "changing", value)
        send(pair, "changing", produced(2, some=records(1)))
        seen = [magic for magic, *_ in shape(stored(pair.kafka, "changing"))]
        compare_stored(pair, "changing", same_bytes=True)
        compare_epochs(pair, "changing")
    assert seen == [2, 0, 1, 2]


def _until_described(side: Side, topic: str, value: str) -> None:
    def described() -> bool:
        return described_format(side, topic)["value"] == value

    eventually(described)


def described_format(side: Side, topic: str) -> dict[str, Any]:
    keys = ["message.format.version"]
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    answer: Any = as_plain(side.ask("DescribeConfigs", 4, request))
    (entry,) = answer["results"][0]["configs"]
    return {**entry, "documentation": None}


def test_what_is_described(pair: Pair) -> None:
    pair.create("describes")
    pair.create("describes-own", message_format_version="0.9.0")
    for topic in ("describes", "describes-own"):
        theirs, ours = (described_format(side, topic) for side in pair.sides)
        assert ours == theirs


def compare_epochs(pair: Pair, topic: str) -> None:
    """Followers of a topic in an old format are told of no epochs: their copies carry none."""
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    pair.compare("OffsetForLeaderEpoch", 4, request)


def test_offsets_by_time(pair: Pair) -> None:
    """Format 0 has no timestamps to look for."""
    for version in ("0.9.0", "0.10.2"):
        topic = f"by-time-{version}"
        pair.create(topic, message_format_version=version)
        send(pair, topic, produced(2))
        send(pair, topic, produced(2, 1))
        for timestamp in (-1, -2, -3, 0, TIMESTAMP_MS + 2, TIMESTAMP_MS + 100):
            here = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[here])])
            pair.compare("ListOffsets", 7, request, f"{version} {timestamp}")
        compare_epochs(pair, topic)


def test_markers_are_not_written_into_old_formats(pair: Pair) -> None:
    for version in ("0.10.2", "0.11.0"):
        topic = f"markers-{version}"
        pair.create(topic, message_format_version=version)
        marker = WritableTxnMarker(
            producer_id=77,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        pair.compare("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[marker]))


def test_internal_topics_are_in_the_brokers_format(pair: Pair) -> None:
    for side in pair.sides:
        for kind, name in ((0, "a group"), (1, "an id")):
            accepted(side, "FindCoordinator", 3, FindCoordinatorRequest(key=name, key_type=kind))
        here = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=3, committed_leader_epoch=-1, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name="inherits", partitions=[here])
        commit = OffsetCommitRequest(group_id="a group", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        accepted(side, "OffsetCommit", 7, commit)
        accepted(
            side, "InitProducerId", 1, InitProducerIdRequest(transactional_id="an id", transaction_timeout_ms=9999)
        )
    for topic_name in ("__consumer_offsets", "__transaction_state"):
        for side in pair.sides:
            segment = side.broker.data_dir / f"{topic_name}-0" / f"{0:020}.log"
            assert {magic for magic, *_ in shape(segment.read_bytes())} == {1}, side.broker.kind


def accepted(side: Side, api: str, version: int, request: Message) -> None:
    """Kafka makes internal topics while it sends the first requests away."""

    def is_answered() -> bool:
        answer: Any = as_plain(side.ask(api, version, request))
        topics = answer.get("topics")
        return bool((topics[0]["partitions"][0] if topics else answer)["error_code"] == 0)

    eventually(is_answered, 60)


def test_a_transaction_cannot_commit_offsets_into_an_old_format(pair: Pair) -> None:
    for side in pair.sides:
        accepted(side, "FindCoordinator", 3, FindCoordinatorRequest(key="a group", key_type=0))
    here = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    request = TxnOffsetCommitRequest(
        transactional_id="an id",
        group_id="a group",
        producer_id=4,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="inherits", partitions=[here])],
    )
    pair.compare("TxnOffsetCommit", 2, request)
