"""Chunks of records: taken whole, walked through, put back, dropped; and positions that never lie."""

from __future__ import annotations

import threading

import pytest

from braidlog.client.consumer.fetch.completed_fetch import CompletedFetch
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer, RecordIterator
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.errors import PoisonRecordError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record


class World:
    """Two partitions that are being read, and what waits of them."""

    def __init__(self, value_of: object = None) -> None:
        self.drains = 0
        self.fetch_buffer = FetchBuffer(threading.RLock(), self._on_drained, None, value_of)  # type: ignore[arg-type]
        self.states = [PartitionState(TopicPartition("t", number)) for number in range(2)]
        for state in self.states:
            state.seek(0)

    def _on_drained(self) -> None:
        self.drains += 1

    def arrive(self, partition: int, count: int, *, base: int | None = None) -> None:
        state = self.states[partition]
        base = int(state.fetch_from) if base is None else base
        data = build_batch(
            [Record(timestamp=1, value=b"%d" % (base + at)) for at in range(count)], base_offset=base, leader_epoch=6
        )
        self.arrive_bytes(state, data, base)
        state.fetch_from = base + count

    def arrive_bytes(self, state: PartitionState, data: bytes, position: int) -> None:
        self.fetch_buffer.incoming.append(CompletedFetch(state, data, 0, len(data), position, []))
        self.fetch_buffer.arrived += len(data)
        state.fetched += 1

    def take(self, most: int = 100) -> list[tuple[int, int]]:
        return [(each.partition, each.offset) for each in self.fetch_buffer.take(most)]

    @property
    def positions(self) -> list[int]:
        return [int(state.position) for state in self.states]

    @property
    def waiting(self) -> int:
        return int(self.fetch_buffer.arrived - self.fetch_buffer.drained)


def test_polls_take_slices_in_turn_and_move_positions() -> None:
    world = World()
    world.arrive(0, 3)
    world.arrive(1, 2)
    assert world.take(2) == [(0, 0), (0, 1)]
    assert world.positions == [2, 0]
    assert world.states[0].position_epoch == 6
    assert world.take(2) == [(0, 2), (1, 0)]
    assert world.take() == [(1, 1)]
    assert world.take() == []
    assert world.positions == [3, 2]
    assert (world.waiting, world.drains) == (0, 2)
    assert world.fetch_buffer.records_taken == 5


def test_iteration_and_polls_share_one_stream() -> None:
    world = World()
    world.arrive(0, 4)
    fetch_buffer = world.fetch_buffer
    records = RecordIterator(fetch_buffer, lambda: fetch_buffer.refill(100))
    assert next(records).offset == 0
    assert next(records).offset == 1
    fetch_buffer.update_position()
    assert world.positions[0] == 2
    assert world.take(1) == [(0, 2)]
    assert world.positions[0] == 3
    fetch_buffer.update_position()
    assert [each.offset for each in records] == [3]
    fetch_buffer.update_position()
    assert world.positions[0] == 4


def test_one_at_a_time() -> None:
    world = World()
    world.arrive(0, 2)
    assert world.fetch_buffer.pop() is None
    assert world.fetch_buffer.refill(100)
    first, second = world.fetch_buffer.pop(), world.fetch_buffer.pop()
    assert first is not None
    assert second is not None
    assert (first.offset, second.offset) == (0, 1)
    assert world.fetch_buffer.pop() is None


def test_a_seek_drops_what_was_fetched_before_it() -> None:
    world = World()
    world.arrive(0, 4)
    world.arrive(0, 4)
    assert world.take(2) == [(0, 0), (0, 1)]
    world.states[0].seek(100)
    world.arrive(0, 1, base=100)
    assert world.take() == [(0, 100)]
    assert world.positions[0] == 101
    assert world.waiting == 0
    assert world.states[0].fetched == world.states[0].drained


def test_a_seek_amid_an_iteration() -> None:
    world = World()
    world.arrive(0, 4)
    fetch_buffer = world.fetch_buffer
    records = RecordIterator(fetch_buffer, lambda: fetch_buffer.refill(100))
    next(records)
    fetch_buffer.update_position()
    world.states[0].seek(3)
    world.arrive(0, 1, base=3)
    assert [each.offset for each in records] == [3]
    fetch_buffer.update_position()
    assert world.positions[0] == 4
    assert world.waiting == 0


def test_a_paused_partition_waits_and_loses_nothing() -> None:
    world = World()
    world.arrive(0, 3)
    world.arrive(1, 1)
    world.arrive(0, 2)
    assert world.take(1) == [(0, 0)]
    world.states[0].is_paused = True
    assert world.take() == [(1, 0)]
    assert world.positions == [1, 1]
    assert world.take() == []
    world.states[0].is_paused = False
    assert world.take() == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert world.waiting == 0


@pytest.mark.parametrize("read_amid", [1, 3])
def test_pausing_again_and_again_keeps_the_order(read_amid: int) -> None:
    world = World()
    world.arrive(0, 3)
    world.arrive(0, 2)
    read: list[tuple[int, int]] = []
    for _ in range(8):
        world.states[0].is_paused = True
        assert world.take() == []
        world.states[0].is_paused = False
        read += world.take(read_amid)
    assert read == [(0, offset) for offset in range(5)]
    assert world.waiting == 0


def test_paused_amid_an_iteration() -> None:
    world = World()
    world.arrive(0, 3)
    fetch_buffer = world.fetch_buffer
    records = RecordIterator(fetch_buffer, lambda: fetch_buffer.refill(100))
    assert next(records).offset == 0
    fetch_buffer.update_position()
    world.states[0].is_paused = True
    world.arrive(1, 1)
    assert next(records).partition == 1
    fetch_buffer.update_position()
    world.states[0].is_paused = False
    assert [each.offset for each in records] == [1, 2]
    fetch_buffer.update_position()
    assert world.positions == [3, 1]
    assert world.states[0].fetched == world.states[0].drained
    assert world.waiting == 0


def test_a_partition_that_is_gone_returns_nothing() -> None:
    world = World()
    world.arrive(0, 3)
    assert world.take(1) == [(0, 0)]
    world.states[0].is_current = False
    assert world.take() == []
    assert world.waiting == 0


def test_positions_pass_what_is_not_shown() -> None:
    world = World()
    marker = build_end_txn_marker(commit=True, producer_id=1, producer_epoch=0, timestamp=1, base_offset=0)
    world.arrive_bytes(world.states[0], marker, 0)
    assert world.take() == []
    assert world.positions[0] == 1


def test_poison_is_raised_after_what_came_before_it_and_again() -> None:
    world = World()
    world.arrive(1, 1)
    broken = bytearray(build_batch([Record(value=b"x")]))
    broken[-1] ^= 1
    world.arrive_bytes(world.states[0], bytes(broken), 0)
    world.arrive(1, 1)
    assert world.take() == [(1, 0)]
    for _ in range(2):
        with pytest.raises(PoisonRecordError, match="t-0 cannot be read at offset 0"):
            world.take()
    assert world.positions == [0, 1]
    world.states[0].seek(1)
    assert world.take() == [(1, 1)]


def test_paused_amid_what_came_before_poison() -> None:
    world = World()
    good = build_batch([Record(value=b"%d" % at) for at in range(3)])
    bad = bytearray(build_batch([Record(value=b"3")], base_offset=3))
    bad[-1] ^= 1
    world.arrive_bytes(world.states[0], good + bytes(bad), 0)
    assert world.fetch_buffer.refill(100)
    first = world.fetch_buffer.pop()
    assert first is not None
    assert first.offset == 0
    world.fetch_buffer.update_position()
    world.states[0].is_paused = True
    assert world.take() == []
    world.states[0].is_paused = False
    world.fetch_buffer.update_position()
    assert world.take() == [(0, 1), (0, 2)], "not lost to who seeks past the poison"
    with pytest.raises(PoisonRecordError):
        world.take()


def test_a_value_that_cannot_be_deserialised() -> None:
    def number(_topic: str, data: bytes) -> int:
        if data == b"2":
            raise ValueError("two is no number")
        return int(data)

    world = World(number)
    world.arrive(0, 4)
    assert [each.value for each in world.fetch_buffer.take(100)] == [0, 1]
    assert world.positions[0] == 2
    for _ in range(2):
        with pytest.raises(PoisonRecordError, match=r"t-0 at offset 2: two is no number.*seek") as caught:
            world.take()
        assert (caught.value.offset, caught.value.resume_at) == (2, 3)
        assert isinstance(caught.value.__cause__, ValueError)
    assert world.positions[0] == 2
    world.states[0].seek(3)
    world.arrive(0, 1, base=3)
    assert [each.value for each in world.fetch_buffer.take(100)] == [3]


def test_slices_for_who_reads_them_whole() -> None:
    world = World()
    world.arrive(0, 4)
    assert world.take(1) == [(0, 0)]
    part = world.fetch_buffer.take_fetch()
    assert part is not None
    assert (part.state, part.position) == (world.states[0], 1)
    world.fetch_buffer.advance_fetch(part, 3, 6, False, 2)
    assert world.positions[0] == 3
    assert world.waiting == part.size
    assert world.take(1) == [(0, 3)]
    world.arrive(0, 2)
    whole = world.fetch_buffer.take_fetch()
    assert whole is not None
    assert whole.position == 4
    world.fetch_buffer.advance_fetch(whole, 6, 6, True, 2)
    assert world.positions[0] == 6
    assert world.fetch_buffer.take_fetch() is None
    assert world.fetch_buffer.records_taken == 6
    assert world.waiting == 0


def test_a_slice_amid_an_iteration() -> None:
    world = World()
    world.arrive(0, 3)
    fetch_buffer = world.fetch_buffer
    records = RecordIterator(fetch_buffer, lambda: fetch_buffer.refill(100))
    next(records)
    part = fetch_buffer.take_fetch()
    assert part is not None
    assert part.position == 1
    fetch_buffer.advance_fetch(part, 3, 6, True, 2)
    assert world.positions[0] == 3
    assert world.states[0].fetched == world.states[0].drained
    assert list(records) == []


def test_the_iteration_ends_with_its_source() -> None:
    world = World()
    with pytest.raises(StopIteration):
        next(RecordIterator(world.fetch_buffer, lambda: False))
