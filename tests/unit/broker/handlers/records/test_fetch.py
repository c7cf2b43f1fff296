"""What readers see of transactions: Fetch and ListOffsets by isolation level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.records.produce import MOST_WORK
from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import TopicAuthorizationFailedError, UnknownTopicIdError
from braidlog.core.slices import ByteSlice
from braidlog.net.channel import ANONYMOUS
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from braidlog.wire.generated.produce import ProduceResponse
from braidlog.wire.records.batch import CODEC_LZ4, iterate_headers
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.conversion import read_message_set
from braidlog.wire.records.reading import Record, read_batch, read_records
from support.authorized_broker import CountingAuthorizer, UnaskedAuthorizer, allow
from support.data_path import START_MS, TOPIC, TOPIC_ID, DataPath, Peer, batch, fetch_request, fetched, produce_request
from support.produced_records import produce

LARGE = LogSettings(max_message_bytes=64 << 20)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path, LARGE)
    yield made
    made.close()


def fetch(world: DataPath, offset: int = 0, *, version: int = 12, committed: bool = True) -> PartitionData:
    return fetched(Peer(world).call(1, version, fetch_request(offset, committed=committed)))


def content(data: PartitionData) -> bytes:
    records = data.records
    assert isinstance(records, ByteSlice)
    return records.buffer[records.start : records.end]


def values(data: PartitionData) -> list[bytes | None]:
    """Of the data that was sent; markers left out."""
    sent = content(data)
    headers = [header for header in iterate_headers(sent, 0, len(sent)) if not header.is_control]
    return [record.value for header in headers for record in read_batch(sent, header)]


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions]


# Fetch


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16])
def test_an_open_transaction_is_for_the_impatient_only(world: DataPath, version: int) -> None:
    world.produce(batch(b"before", producer_id=3, transactional=False), transactional_id=None)
    world.produce(batch(b"open"))
    world.produce(batch(b"after", producer_id=3, sequence=1, transactional=False), transactional_id=None)
    patient = fetch(world, version=version)
    assert values(patient) == [b"before"]
    assert (patient.high_watermark, patient.last_stable_offset) == (3, 1)
    assert aborted(patient) == []
    impatient = fetch(world, version=version, committed=False)
    assert values(impatient) == [b"before", b"open", b"after"]
    assert aborted(impatient) is None


def test_the_aborted_ones_are_named_if_they_touch_what_was_read(world: DataPath) -> None:
    for number in range(3):
        world.produce(batch(b"x", sequence=number))
        world.end(7, 0, commits=number == 1)
    # Offsets: 0 data, 1 abort, 2 data, 3 commit, 4 data, 5 abort.
    assert aborted(fetch(world)) == [(7, 0), (7, 4)]
    assert aborted(fetch(world, 1)) == [(7, 0), (7, 4)]
    assert aborted(fetch(world, 2)) == [(7, 4)]
    small = fetched(Peer(world).call(1, 12, fetch_request(2, max_bytes=1)))
    assert aborted(small) == []
    assert aborted(fetch(world, 6)) == []


def test_transactions_that_overlap_are_all_named(world: DataPath) -> None:
    world.produce(batch(b"a", producer_id=7))
    world.produce(batch(b"b", producer_id=8))
    world.end(8, 0, commits=False)
    world.produce(batch(b"c", producer_id=9))
    world.end(9, 0, commits=True)
    assert fetch(world).last_stable_offset == 0
    world.end(7, 0, commits=False)
    data = fetch(world)
    assert data.last_stable_offset == data.high_watermark == 6
    # In the order of their markers, as the index has them; readers sort them.
    assert aborted(data) == [(8, 1), (7, 0)]


def test_an_abort_far_behind_is_found_across_segments(tmp_path: Path) -> None:
    world = DataPath(tmp_path, LogSettings(segment_bytes=200))
    world.produce(batch(b"aborted"))
    for number in range(8):
        world.produce(batch(b"plain", producer_id=3, sequence=number, transactional=False), transactional_id=None)
    world.end(7, 0, commits=False)
    for number in range(8, 12):
        world.produce(batch(b"plain", producer_id=3, sequence=number, transactional=False), transactional_id=None)
    assert len(world.log().segments) > 3
    for offset in range(10):
        assert aborted(fetch(world, offset)) == [(7, 0)], offset
    assert aborted(fetch(world, 10)) == []
    world.close()


def test_a_marker_wakes_those_who_wait_for_more_than_it_has(world: DataPath) -> None:
    """The bytes came earlier, with the data: the marker only makes them readable."""
    peer = Peer(world)
    peer.ask(1, 12, fetch_request(min_bytes=500, max_wait_ms=1000))
    world.produce(batch(b"v" * 1000))
    world.steps.run()
    assert not peer.answers
    world.end(7, 0, commits=True)
    assert values(fetched(peer.answers.popleft())) == [b"v" * 1000]


def test_the_end_of_another_transaction_does_not_wake_for_good(world: DataPath) -> None:
    world.produce(batch(b"open", producer_id=8))
    world.produce(batch(b"short"))
    peer = Peer(world)
    peer.ask(1, 12, fetch_request(min_bytes=1, max_wait_ms=1000))
    world.end(7, 0, commits=True)
    assert not peer.answers
    world.end(8, 0, commits=True)
    assert values(fetched(peer.answers.popleft())) == [b"open", b"short"]


def test_a_reader_inside_a_session_is_told_when_the_transaction_ends(world: DataPath) -> None:
    peer = Peer(world)
    world.produce(batch(b"a"))
    begun = peer.call(1, 12, fetch_request(session=(0, 0)))
    assert isinstance(begun, FetchResponse)
    assert values(fetched(begun)) == []
    peer.ask(1, 12, fetch_request(session=(begun.session_id, 1), named=False, min_bytes=1, max_wait_ms=1000))
    world.end(7, 0, commits=False)
    data = fetched(peer.answers.popleft())
    assert values(data) == [b"a"]
    assert aborted(data) == [(7, 0)]
    assert data.last_stable_offset == 2


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_clients_see_the_data_and_never_a_marker(world: DataPath, version: int) -> None:
    world.produce(batch(b"a"))
    world.end(7, 0, commits=False)
    world.produce(batch(b"b", sequence=1))
    data = fetch(world, version=version)
    sent = content(data)
    messages = read_message_set(sent, 0, len(sent))
    assert [(message.offset, message.value) for message in messages] == [(0, b"a"), (2, b"b")]


def test_records_deleted_below_an_open_transaction(world: DataPath) -> None:
    world.produce(batch(b"a", b"b"))
    world.produce(batch(b"c", sequence=2))
    world.log().increment_log_start_offset(2)
    assert fetch(world, 2).last_stable_offset == 2
    world.end(7, 0, commits=False)
    data = fetch(world, 2)
    assert data.last_stable_offset == 4
    assert aborted(data) == [(7, 0)]


# ListOffsets


def large_batch(codec: int, value: bytes = bytes(MOST_WORK)) -> bytes:
    records = [Record(timestamp=START_MS + number, key=b"k", value=value) for number in range(8)]
    return build_batch(records, codec=codec)


def small_batch(text: bytes) -> bytes:
    return build_batch([Record(timestamp=START_MS, key=text, value=text)])


def many_partitions(world: DataPath, count: int) -> FetchRequest:
    for index in range(2, count):
        world.partitions.append(world.add_partition(TOPIC, index, TOPIC_ID))
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(count)
                ],
            )
        ],
    )


def test_many_partitions_are_read_in_slices_with_one_answer(world: DataPath) -> None:
    request = many_partitions(world, 300)
    for index in (0, 150, 299):
        Peer(world).call(0, 11, produce([(index, small_batch(b"%d" % index))]))
    answer = Peer(world).call(1, 11, request)
    assert isinstance(answer, FetchResponse)
    partitions = answer.responses[0].partitions
    assert [each.partition_index for each in partitions] == list(range(300))
    filled = [each.partition_index for each in partitions if isinstance(each.records, ByteSlice) and each.records.size]
    assert filled == [0, 150, 299]


def test_a_waiting_fetch_of_many_partitions_is_woken(world: DataPath) -> None:
    request = many_partitions(world, 300)
    request.max_wait_ms = 1000
    request.min_bytes = 1
    peer = Peer(world)
    peer.ask(1, 11, request)
    world.steps.run()
    assert not peer.answers
    Peer(world).call(0, 11, produce([(250, small_batch(b"x"))]))
    world.steps.run()
    assert len(peer.answers) == 1
    assert not peer.muted


def test_a_partition_named_again_is_read_once(world: DataPath) -> None:
    Peer(world).call(0, 11, produce([(0, small_batch(b"x"))]))
    request = fetch_request(0, committed=False)
    request.topics[0].partitions = request.topics[0].partitions * 1000
    answer = Peer(world).call(1, 11, request)
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions) == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_conversion_for_old_readers_happens_elsewhere(world: DataPath, version: int) -> None:
    Peer(world).call(0, 11, produce([(0, large_batch(CODEC_LZ4, b"value"))]))
    peer = Peer(world)
    peer.ask(1, version, fetch_request(0, committed=False))
    assert peer.muted
    world.steps.run()
    (answer,) = peer.answers
    records = fetched(answer).records
    assert isinstance(records, ByteSlice)
    read = read_records(records.tobytes())
    assert [record.value for record in read] == [b"value"] * 8
    assert world.memory.conversions.used == 0


def test_one_readers_failure_is_not_that_of_the_others(world: DataPath) -> None:
    """Several readers wait for one append; answering the first fails."""

    class Failing(Peer):
        def on_finished(self) -> None:
            raise MemoryError

    peers = [Failing(world), Peer(world), Peer(world)]
    for peer in peers:
        peer.ask(1, 11, fetch_request(0, committed=False, min_bytes=1, max_wait_ms=1000))
    world.steps.run()
    produced = Peer(world).call(0, 11, produce([(0, small_batch(b"x"))]))
    assert isinstance(produced, ProduceResponse)
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert [peer.closed for peer in peers] == [True, False, False]
    assert [len(peer.answers) for peer in peers] == [0, 1, 1]


def test_a_turn_that_ends_between_two_topics_names_none_twice(world: DataPath) -> None:
    request = produce([(0, small_batch(b"x"))])
    request.topic_data = request.topic_data * 150
    answer = Peer(world).call(0, 11, request)
    assert isinstance(answer, ProduceResponse)
    assert [len(topic.partition_responses) for topic in answer.responses] == [1] * 150


class Ticking(ManualClock):
    """Every look at it takes longer than a slice."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


def test_an_append_between_the_slices_of_a_read_is_not_slept_through(tmp_path: Path) -> None:
    """The reader of many partitions looked at the first before, and begins to wait after, somebody appended to it."""
    world = DataPath(tmp_path, LARGE, Ticking())
    request = many_partitions(world, 300)
    request.max_wait_ms = 10_000
    request.min_bytes = 1
    peer = Peer(world)
    peer.ask(1, 11, request)
    for _ in range(20):
        world.steps.step()
    assert len(world.time_slicer) == 1, "it reads"
    Peer(world).call(0, 11, produce([(0, small_batch(b"x"))]))
    assert len(peer.answers) == 1
    world.close()


def test_when_the_broker_stops_no_fetch_begins_to_wait(world: DataPath) -> None:
    world.fetch_handler.finish_all()
    answer = Peer(world).call(1, 11, fetch_request(0, committed=False, min_bytes=1, max_wait_ms=60_000))
    assert isinstance(answer, FetchResponse)


# Access

OTHER_ID = b"p" * 16
MAY_READ = allow(AclResourceType.TOPIC, TOPIC, AclOperation.READ, ANONYMOUS)
FORBIDDEN = TopicAuthorizationFailedError.code


def fetch_all(session: tuple[int, int] = (0, -1), **topics: bytes) -> FetchRequest:
    """Two partitions of each topic, by name or id."""
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(2)]
    return FetchRequest(
        max_bytes=1 << 20,
        max_wait_ms=1000,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=wanted) for name, topic_id in topics.items()],
    )


def errors(peer: Peer) -> list[list[int]]:
    response = peer.answers.popleft()
    assert isinstance(response, FetchResponse)
    return [[each.error_code for each in topic.partitions] for topic in response.responses]


def test_topics_are_decided_about_once_each_and_only_what_is_allowed_is_read(tmp_path: Path) -> None:
    authorizer = CountingAuthorizer(MAY_READ)
    world = DataPath(tmp_path, authorizer=authorizer)
    world.add_partition("payments", 0, OTHER_ID)
    peer = Peer(world)
    peer.ask(1, 12, fetch_all(orders=TOPIC_ID, payments=OTHER_ID, unknown=b"u" * 16))
    world.steps.run()
    assert not peer.answers, "it waits for what it may read"
    other = Peer(world)
    forbidden = produce_request({0: batch(b"x" * 100, transactional=False, producer_id=-1)}, None, topic="payments")
    world.produce_handler.authorizer = Authorizer()
    assert isinstance(other.call(0, 11, forbidden), ProduceResponse)
    assert not peer.answers, "and for nothing else"
    assert isinstance(other.call(0, 11, produce([(1, build_batch([Record(value=b"y")]))])), ProduceResponse)
    assert errors(peer) == [[0, 0], [FORBIDDEN] * 2, [FORBIDDEN] * 2]
    assert sorted(authorizer.asked) == [(AclOperation.READ, name) for name in ("orders", "payments", "unknown")]
    world.close()


def test_a_topic_of_a_session_is_decided_about_when_its_id_is_known(tmp_path: Path) -> None:
    authorizer = CountingAuthorizer(MAY_READ)
    world = DataPath(tmp_path, authorizer=authorizer)
    peer = Peer(world)
    first = peer.call(1, 13, fetch_all((0, 0), orders=TOPIC_ID, payments=OTHER_ID))
    assert isinstance(first, FetchResponse)
    assert [each.error_code for each in first.responses[1].partitions] == [UnknownTopicIdError.code] * 2
    world.add_partition("payments", 0, OTHER_ID)
    peer.ask(1, 13, fetch_all((first.session_id, 1)))
    world.steps.run()
    world.steps.wait()
    assert errors(peer) == [[FORBIDDEN] * 2]
    assert authorizer.asked[-1] == (AclOperation.READ, "payments"), "each request decides"
    world.close()


def test_a_session_loses_what_its_reader_may_not_read_any_more(tmp_path: Path) -> None:
    authorizer = CountingAuthorizer(MAY_READ)
    world = DataPath(tmp_path, authorizer=authorizer)
    peer = Peer(world)
    peer.ask(1, 12, fetch_all((0, 0), orders=TOPIC_ID))
    world.steps.run()
    world.steps.wait()
    first = peer.answers.popleft()
    assert isinstance(first, FetchResponse)
    authorizer.rules = CountingAuthorizer().rules
    peer.ask(1, 12, fetch_all((first.session_id, 1)))
    world.steps.run()
    assert errors(peer) == [[FORBIDDEN] * 2]
    world.close()


def test_very_many_partitions_are_decided_about_once_a_topic(tmp_path: Path) -> None:
    authorizer = CountingAuthorizer()
    world = DataPath(tmp_path, authorizer=authorizer)
    wanted = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(300)]
    peer = Peer(world)
    peer.ask(1, 12, FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=TOPIC, partitions=wanted)]))
    world.steps.run()
    assert errors(peer) == [[FORBIDDEN] * 300]
    assert authorizer.asked == [(AclOperation.READ, TOPIC)]
    world.close()


def test_without_rules_nobody_is_asked(tmp_path: Path) -> None:
    world = DataPath(tmp_path, authorizer=UnaskedAuthorizer())
    peer = Peer(world)
    peer.ask(1, 12, fetch_request())
    world.steps.run()
    assert errors(peer) == [[0]]
    world.close()
