"""What readers see of transactions: Fetch and ListOffsets by isolation level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.config.log_settings import LogSettings
from braidlog.core.slices import ByteSlice
from braidlog.wire.generated.fetch import FetchResponse, PartitionData
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.conversion import read_message_set
from braidlog.wire.records.reading import read_batch
from support.data_path import START_MS, DataPath, Peer, batch, fetch_request, fetched


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path)
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


def offset(world: DataPath, timestamp: int, *, committed: bool, version: int = 7) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1 if committed else 0,
        topics=[ListOffsetsTopic(name="orders", partitions=[wanted])],
    )
    response = Peer(world).call(2, version, request)
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 4, 7])
def test_the_latest_offset_by_isolation(world: DataPath, version: int) -> None:
    world.produce(batch(b"before", producer_id=3, transactional=False), transactional_id=None)
    world.produce(batch(b"open", timestamp=START_MS + 5))
    assert offset(world, -1, committed=True, version=version).offset == 1
    assert offset(world, -1, committed=False, version=version).offset == 2
    world.end(7, 0, commits=False)
    assert offset(world, -1, committed=True, version=version).offset == 3


def test_a_time_inside_an_open_transaction_is_not_there_yet(world: DataPath) -> None:
    world.produce(batch(b"before", producer_id=3, transactional=False), transactional_id=None)
    world.produce(batch(b"open", timestamp=START_MS + 5))
    assert offset(world, START_MS + 5, committed=True).offset == -1
    assert offset(world, START_MS + 5, committed=False).offset == 1
    # The newest record is the open one: there is none for those who read committed data.
    assert offset(world, -3, committed=True).offset == -1
    assert offset(world, -3, committed=False).offset == 1
    world.end(7, 0, commits=True)
    assert offset(world, START_MS + 5, committed=True).offset == 1
