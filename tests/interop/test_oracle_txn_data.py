"""The same transactions to Apache Kafka 3.9 and to us: what partitions take, refuse, tell and show."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from braidlog.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from braidlog.wire.generated.describe_transactions import DescribeTransactionsRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from braidlog.wire.message import Message
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_batch
from support.eventually import eventually
from support.fetching import fetch_request
from support.oracle import TIMESTAMP_MS, Pair, Side, unlike
from support.raw import versions_of

pytestmark = pytest.mark.peer

TRANSACTION = 1
TRANSACTIONAL_PRODUCE = [version for version in versions_of("Produce") if version >= 3]
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS
RETRIABLE = (14, 15, 16, 51)


def ask_until(side: Side, name: str, version: int, request: Message, code: Callable[[Any], int]) -> Any:
    """The answer, once the coordinator is ready to give one; it must be without error."""
    answers: list[Any] = []

    def is_ready() -> bool:
        answers.append(side.ask(name, version, request))
        return code(answers[-1]) not in RETRIABLE

    eventually(is_ready)
    assert code(answers[-1]) == 0, answers[-1]
    return answers[-1]


def added(answer: Any) -> int:
    code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    return code


class Writer:
    """A transactional producer on both sides, each under the id that it got there."""

    def __init__(self, pair: Pair, name: str) -> None:
        self.pair = pair
        self.name = name
        self.ids: dict[Side, tuple[int, int]] = {}
        self.init()

    def init(self) -> None:
        find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.name])
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        for side in self.pair.sides:
            ask_until(side, "FindCoordinator", 4, find, lambda answer: answer.coordinators[0].error_code)
            answer = ask_until(side, "InitProducerId", 4, request, lambda answer: answer.error_code)
            self.ids[side] = (answer.producer_id, answer.producer_epoch)

    def id_of(self, side: Side) -> int:
        return self.ids[side][0]

    def epoch_of(self, side: Side) -> int:
        return self.ids[side][1]

    def add(self, topic: str, partition: int = 0) -> None:
        for side in self.pair.sides:
            producer_id, epoch = self.ids[side]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            )
            ask_until(side, "AddPartitionsToTxn", 3, request, added)

    def end(self, *, commits: bool) -> None:
        for side in self.pair.sides:
            producer_id, epoch = self.ids[side]
            request = EndTxnRequest(
                transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commits
            )
            ask_until(side, "EndTxn", 3, request, lambda answer: answer.error_code)
            self._complete(side)

    def _complete(self, side: Side) -> None:
        """The markers are written after EndTxn has its answer."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])

        def is_complete() -> bool:
            answer: Any = side.ask("DescribeTransactions", 0, request)
            return str(answer.transaction_states[0].transaction_state).startswith("Complete")

        eventually(is_complete)

    def batch(
        self,
        side: Side,
        *values: bytes,
        sequence: int = 0,
        epoch: int | None = None,
        transactional: bool = True,
        producer_id: int | None = None,
    ) -> bytes:
        own_id, own_epoch = self.ids[side]
        return build_batch(
            [Record(timestamp=TIMESTAMP_MS + number, key=b"k", value=value) for number, value in enumerate(values)],
            producer_id=own_id if producer_id is None else producer_id,
            producer_epoch=own_epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def produce(
        self,
        topic: str,
        *values: bytes,
        version: int = 9,
        transactional_id: str | None = "",
        partition: int = 0,
        what: str = "",
        **batch: Any,
    ) -> Any:
        """Both must answer alike; returns Kafka's answer for the partition."""
        name = self.name if transactional_id == "" else transactional_id

        def request(side: Side) -> Message:
            return produce_request(topic, {partition: self.batch(side, *values, **batch)}, name)

        answer = self.pair.compare("Produce", version, request, what)
        return answer["responses"][0]["partition_responses"][0]


def produce_request(topic: str, batches: dict[int, bytes], transactional_id: str | None) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def write_markers(
    pair: Pair,
    writer: Writer,
    topics: dict[str, list[int]],
    *,
    commits: bool = False,
    above: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> Any:
    """A marker of the writer's epoch, or so many above it."""

    def request(side: Side) -> Message:
        marker = WritableTxnMarker(
            producer_id=writer.id_of(side),
            producer_epoch=writer.epoch_of(side) + above,
            transaction_result=commits,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            coordinator_epoch=coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    answer = pair.compare("WriteTxnMarkers", version, request, f"{topics} {above} above")
    return answer["markers"][0]["topics"][0]["partitions"][0]["error_code"]


def compare_alike(
    pair: Pair, name: str, version: int, request: Callable[[Side], Message], seen: Callable[[Any], Any]
) -> Any:
    theirs, ours = (seen(side.normal(side.ask(name, version, request(side)))) for side in pair.sides)
    different = unlike(theirs, ours)
    if different:
        raise AssertionError("\n".join([f"{name} v{version}", *different]))
    return theirs


def compare_producers(pair: Pair, topic: str) -> list[Any]:
    """What partition 0 knows of its producers; markers are stamped by each broker's clock."""

    def seen(answer: Any) -> Any:
        for producer in answer["topics"][0]["partitions"][0]["active_producers"]:
            if producer["last_timestamp"] > TIMESTAMP_MS + 1000:
                producer["last_timestamp"] = "a marker's"
        return answer

    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    answer = compare_alike(pair, "DescribeProducers", 0, lambda _: request, seen)
    producers: list[Any] = answer["topics"][0]["partitions"][0]["active_producers"]
    return producers


def in_words(data: bytes | None) -> Any:
    """Batches without what each broker stamps or numbers itself."""
    if not data:
        return data
    words = []
    for header in iterate_headers(data, 0, len(data)):
        records = [(record.offset, record.key, record.value) for record in read_batch(data, header)]
        words.append((header.base_offset, header.attributes, header.producer_epoch, header.base_sequence, records))
    return words


def compare_fetched(
    pair: Pair, version: int, topic: str, offset: int, committed: bool, most: int = 1 << 20
) -> list[Any] | None:
    """Both must show the same; returns the aborted transactions, by their first offsets."""

    def seen(answer: Any) -> Any:
        for partition in answer["responses"][0]["partitions"]:
            # Converted messages are compressed and cut each broker's own way: only that data came.
            partition["records"] = in_words(partition["records"]) if version >= 4 else bool(partition["records"])
        return answer

    fields: dict[str, Any] = {"isolation_level": 1 if committed else 0} if version >= 4 else {}
    answer = compare_alike(
        pair,
        "Fetch",
        version,
        lambda side: fetch_request(side, version, topic, offset, partition_max_bytes=most, **fields),
        seen,
    )
    aborted = answer["responses"][0]["partitions"][0]["aborted_transactions"]
    return None if aborted is None else [each["first_offset"] for each in aborted]


def compare_offsets(pair: Pair, version: int, topic: str, timestamp: int, committed: bool) -> int:
    def seen(answer: Any) -> Any:
        for partition in answer["topics"][0]["partitions"]:
            if partition["timestamp"] > TIMESTAMP_MS + 1000:
                partition["timestamp"] = "a marker's"
        return answer

    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed else 0,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    answer = compare_alike(pair, "ListOffsets", version, lambda _: request, seen)
    return int(answer["topics"][0]["partitions"][0]["offset"])


# What partitions take and refuse


@pytest.mark.parametrize("version", TRANSACTIONAL_PRODUCE)
def test_a_batch_outside_of_a_transaction_is_refused(pair: Pair, version: int) -> None:
    topic = f"outside-{version}"
    pair.create(topic, partitions=2)
    writer = Writer(pair, f"outside-{version}")
    refused = 48 if version < 11 else 120
    assert writer.produce(topic, b"a", version=version, what="never added")["error_code"] == refused
    writer.add(topic)
    assert writer.produce(topic, b"a", version=version)["error_code"] == 0
    assert writer.produce(topic, b"b", version=version, sequence=1)["base_offset"] == 1
    other = writer.produce(topic, b"c", version=version, partition=1, what="another partition")
    assert other["error_code"] == refused
    writer.end(commits=True)
    assert writer.produce(topic, b"c", version=version, sequence=2, what="after the end")["error_code"] == refused
    assert (
        writer.produce(topic, b"b", version=version, sequence=1, what="a retry after the end")["error_code"] == refused
    )
    compare_producers(pair, topic)


@pytest.mark.parametrize("version", [3, 9, 10, 11])
def test_a_producer_that_the_coordinator_does_not_know_so(pair: Pair, version: int) -> None:
    topic = f"foreign-{version}"
    pair.create(topic)
    writer = Writer(pair, f"foreign-{version}")
    writer.add(topic)
    writer.produce(topic, b"a", version=version, transactional_id="nobody-knows-it", what="unknown transactional id")
    writer.produce(topic, b"a", version=version, producer_id=987_654, what="another producer id")
    writer.produce(topic, b"a", version=version, epoch=30, what="an epoch of the future")
    writer.produce(topic, b"a", version=version, transactional_id=None, what="no transactional id")
    assert (
        writer.produce(topic, b"b", version=version, sequence=1, what="before one that was refused")["error_code"] == 45
    )
    assert writer.produce(topic, b"a", version=version)["error_code"] == 0
    outside = writer.produce(
        topic, b"b", version=version, transactional=False, sequence=1, what="beside the transaction"
    )
    assert outside["error_code"] == 48
    writer.init()
    writer.produce(topic, b"d", version=version, epoch=0, sequence=1, what="a fenced epoch")
    compare_producers(pair, topic)


def test_two_producers_in_one_request(pair: Pair) -> None:
    pair.create("two-producers", partitions=2)
    one, two = Writer(pair, "two-producers-1"), Writer(pair, "two-producers-2")
    one.add("two-producers", 0)
    two.add("two-producers", 1)
    pair.compare(
        "Produce",
        9,
        lambda side: produce_request("two-producers", {0: one.batch(side, b"a"), 1: two.batch(side, b"b")}, one.name),
    )


def test_sequences_and_duplicates_across_transactions(pair: Pair) -> None:
    pair.create("txn-sequences")
    writer = Writer(pair, "txn-sequences")
    writer.add("txn-sequences")
    assert writer.produce("txn-sequences", b"a", b"b")["error_code"] == 0
    writer.end(commits=True)
    writer.add("txn-sequences")
    assert writer.produce("txn-sequences", b"a", b"b", what="a duplicate of the last transaction")["base_offset"] == 0
    assert [producer["current_txn_start_offset"] for producer in compare_producers(pair, "txn-sequences")] == [-1]
    assert writer.produce("txn-sequences", b"x", sequence=7, what="a gap")["error_code"] == 45
    # The duplicate has asked, and what asked first must be written first.
    assert writer.produce("txn-sequences", b"c", sequence=2, what="the next one")["error_code"] == 45
    writer.init()
    writer.add("txn-sequences")
    assert writer.produce("txn-sequences", b"c", sequence=2, what="a new epoch")["error_code"] == 45
    assert writer.produce("txn-sequences", b"c", what="a new epoch, from 0 on")["error_code"] == 0
    compare_producers(pair, "txn-sequences")
    writer.end(commits=False)
    compare_fetched(pair, 12, "txn-sequences", 0, True)


# Markers


def test_markers_by_epoch(pair: Pair) -> None:
    pair.create("markers", partitions=2)
    writer = Writer(pair, "markers")
    writer.init()
    writer.add("markers")
    assert writer.produce("markers", b"a")["error_code"] == 0
    assert write_markers(pair, writer, {"markers": [0]}, above=-1) == 47
    assert write_markers(pair, writer, {"markers": [0]}, coordinator_epoch=5) == 0
    assert compare_fetched(pair, 12, "markers", 0, True) == [0]
    compare_producers(pair, "markers")
    assert write_markers(pair, writer, {"markers": [0]}, coordinator_epoch=4) == 52
    assert write_markers(pair, writer, {"markers": [0]}, coordinator_epoch=5, commits=True) == 0
    # The coordinator still thinks that the transaction is open: it lets the producer write on.
    writer.produce("markers", b"b", sequence=1, what="after a marker of somebody else")
    compare_producers(pair, "markers")
    # One above, as transactions of version 2 have it: nothing of the epoch before may follow.
    assert write_markers(pair, writer, {"markers": [0, 1]}, coordinator_epoch=5, above=1) == 0
    compare_producers(pair, "markers")
    assert writer.produce("markers", b"c", sequence=2, what="of the epoch before")["error_code"] == 47
    assert write_markers(pair, writer, {"markers": [0]}, coordinator_epoch=5) == 47
    compare_fetched(pair, 12, "markers", 0, True)


def test_markers_for_what_is_not_there(pair: Pair) -> None:
    pair.create("no-marker")
    writer = Writer(pair, "no-marker")
    assert write_markers(pair, writer, {"gone": [0], "no-marker": [0, 7]}) == 3
    assert write_markers(pair, writer, {"no-marker": [0]}, commits=True) == 0
    pair.compare("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[]))
    compare_producers(pair, "no-marker")


def test_producers_of_what_is_not_there(pair: Pair) -> None:
    pair.create("no-producers")
    for topic, partition in (("no-producers", 0), ("no-producers", 5), ("gone", 0), ("not a topic", 0), ("", 0)):
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
        pair.compare("DescribeProducers", 0, request, f"{topic}-{partition}")


# What readers see


@pytest.fixture(scope="module")
def overlapping(pair: Pair) -> str:
    """Two aborted transactions around a committed one, and one that stays open.

    0 a, 1 b, 2 abort b, 3 plain, 4 c, 5 commit c, 6 abort a, 7 d (open), 8 plain
    """
    topic = "overlapping"
    pair.create(topic)
    writers = {name: Writer(pair, f"overlapping-{name}") for name in "abcd"}
    plain = Writer(pair, "overlapping-plain")
    for name in ("a", "b"):
        writers[name].add(topic)
        writers[name].produce(topic, name.encode())
    writers["b"].end(commits=False)
    plain.produce(topic, b"plain", transactional=False, transactional_id=None)
    writers["c"].add(topic)
    writers["c"].produce(topic, b"c")
    writers["c"].end(commits=True)
    writers["a"].end(commits=False)
    writers["d"].add(topic)
    writers["d"].produce(topic, b"d")
    plain.produce(topic, b"plain", transactional=False, transactional_id=None, sequence=1)
    return topic


@pytest.mark.parametrize("version", versions_of("Fetch"))
def test_fetches_among_transactions(pair: Pair, overlapping: str, version: int) -> None:
    for offset in range(10):
        for committed in (False, True) if version >= 4 else (False,):
            compare_fetched(pair, version, overlapping, offset, committed)
    compare_fetched(pair, version, overlapping, 11, False)


def test_the_aborted_ones_are_those_that_touch_what_was_read(pair: Pair, overlapping: str) -> None:
    assert compare_fetched(pair, 12, overlapping, 0, True) == [0, 1]
    assert compare_fetched(pair, 12, overlapping, 3, True) == [0]
    assert compare_fetched(pair, 12, overlapping, 7, True) == []
    assert compare_fetched(pair, 12, overlapping, 0, False) is None


@pytest.mark.parametrize("version", [version for version in versions_of("ListOffsets") if version >= 1])
def test_offsets_among_transactions(pair: Pair, overlapping: str, version: int) -> None:
    timestamps = [-1, -2, 0, TIMESTAMP_MS, TIMESTAMP_MS + 1, TIMESTAMP_MS + 10**9]
    timestamps += [-3] if version >= 7 else []
    for timestamp in timestamps:
        for committed in (False, True) if version >= 2 else (False,):
            offset = compare_offsets(pair, version, overlapping, timestamp, committed)
            if timestamp == -1:
                assert offset == (7 if committed else 9)


def test_a_marker_says_what_kafka_says(pair: Pair, overlapping: str) -> None:
    """Byte by byte, but for the time and the producer's id."""
    markers = []
    for side in pair.sides:
        answer: Any = side.ask("Fetch", 12, fetch_request(side, 12, overlapping, 2))
        data = answer.responses[0].partitions[0].records.tobytes()
        (header, *_) = iterate_headers(data, 0, len(data))
        (record,) = read_batch(data, header)
        assert header.is_control
        assert record.value is not None
        version, _ = struct.unpack(">hi", record.value)
        markers.append((header.size, header.attributes, header.base_sequence, header.count, record.key, version))
    assert markers[0] == markers[1]
