"""The work of a parallel consumer against a model: order within queues, nothing committed past incomplete work."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from braidlog.client.consumer.parallel.work_tracker import (
    ORDERINGS,
    OffsetProgress,
    OrderedQueues,
    Ordering,
    Work,
    WorkTracker,
)
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.types import TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
KEYS = (b"a", b"b", None)


def record(partition: TopicPartition, offset: int, key: object = None) -> ConsumerRecord:
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, key, b"")


class TrackerModel(RuleBasedStateMachine):
    """Each partition has a log; it is read from the committed offset whenever it is (again) assigned."""

    @initialize(ordering=st.sampled_from(ORDERINGS))
    def begin(self, ordering: Ordering) -> None:
        self.ordering = ordering
        self.tracker = WorkTracker(ordering)
        self.now = 0.0
        self.logs: dict[TopicPartition, list[bytes | None]] = {each: [] for each in PARTITIONS}
        self.read = dict.fromkeys(PARTITIONS, 0)
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.life = dict.fromkeys(PARTITIONS, 0)
        self.done: dict[TopicPartition, set[int]] = {each: set() for each in PARTITIONS}
        self.in_progress: list[tuple[Work, int]] = []
        self.resting: list[tuple[Work, int]] = []
        self.last_begun: dict[object, int] = {}

    @rule(partition=st.sampled_from(PARTITIONS), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=5))
    def poll(self, partition: TopicPartition, keys: list[bytes | None]) -> None:
        self.logs[partition] += keys
        start = self.read[partition]
        records = [record(partition, at, self.logs[partition][at]) for at in range(start, len(self.logs[partition]))]
        assert self.tracker.add(records) == len(records)
        self.read[partition] = len(self.logs[partition])

    @rule(count=st.integers(1, 4))
    def begin_work(self, count: int) -> None:
        for _ in range(count):
            work = self.tracker.next_work(self.now)
            if work is None:
                return
            life = self.life[work.partition]
            assert (work, life) not in self.in_progress
            self.resting = [each for each in self.resting if each[0] is not work]
            ordering_key = self._ordering_key(work)
            if ordering_key is not None:
                assert ordering_key not in [self._ordering_key(other) for other, _ in self.in_progress]
                key = (ordering_key, life)
                assert work.record.offset >= self.last_begun.get(key, -1)
                self.last_begun[key] = work.record.offset
            self.in_progress.append((work, life))

    def _ordering_key(self, work: Work) -> object:
        if self.ordering == "unordered" or (self.ordering == "key" and work.record.key is None):
            return None
        return work.partition if self.ordering == "partition" else (work.partition, work.record.key)

    @precondition(lambda self: self.in_progress)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        work, life = self.in_progress.pop(data.draw(st.integers(0, len(self.in_progress) - 1)))
        self.tracker.finish(work)
        if life == self.life[work.partition]:
            self.done[work.partition].add(work.record.offset)

    @precondition(lambda self: self.in_progress)
    @rule(data=st.data(), delay=st.integers(0, 3))
    def fail(self, data: st.DataObject, delay: int) -> None:
        work, life = self.in_progress.pop(data.draw(st.integers(0, len(self.in_progress) - 1)))
        self.tracker.retry_at(work, self.now + delay)
        self.resting.append((work, life))

    @rule()
    def wait(self) -> None:
        self.now += 1.0

    @rule()
    def commit(self) -> None:
        offsets = self.tracker.committable()
        for partition, reported in offsets.items():
            assert reported.offset > self.committed[partition]
            self.committed[partition] = reported.offset
        self.tracker.note_committed(offsets)
        assert self.tracker.committable() == {}

    @rule(partition=st.sampled_from(PARTITIONS))
    def lose(self, partition: TopicPartition) -> None:
        """The partition goes to another member and comes back: what is not committed is read again."""
        self.tracker.drop([partition])
        self.life[partition] += 1
        self.read[partition] = self.committed[partition]
        self.done[partition] = set()

    @rule(partition=st.sampled_from(PARTITIONS))
    def set_back(self, partition: TopicPartition) -> None:
        """The position is set back without a rebalance (a reset): the next poll starts a new reading."""
        if self.read[partition] > self.committed[partition]:
            self.life[partition] += 1
            self.read[partition] = self.committed[partition]
            self.done[partition] = set()
            self.poll(partition, [b"a"])

    @invariant()
    def nothing_is_committed_past_undone_work(self) -> None:
        for partition in PARTITIONS if hasattr(self, "tracker") else ():
            position = self.tracker.committable().get(partition)
            offset = position.offset if position is not None else self.committed[partition]
            incomplete = set(range(self.committed[partition], self.read[partition])) - self.done[partition]
            assert all(each >= offset for each in incomplete)

    @invariant()
    def the_count_of_undone_records_is_right(self) -> None:
        if hasattr(self, "tracker"):
            expected = sum(self.tracker.incomplete_of([partition]) for partition in PARTITIONS)
            assert self.tracker.incomplete == expected
            assert self.tracker.in_progress == len(self.in_progress)

    def teardown(self) -> None:
        """Whatever happened: finishing everything leaves nothing incomplete, and everything committed."""
        if not hasattr(self, "tracker"):
            return
        self.now += 100
        while self.in_progress or (work := self.tracker.next_work(self.now)) is not None:
            if not self.in_progress:
                assert work is not None
                self.in_progress.append((work, self.life[work.partition]))
            self.tracker.finish(self.in_progress.pop()[0])
        assert self.tracker.incomplete == 0
        assert self.tracker.ready == 0
        for partition, reported in self.tracker.committable().items():
            assert reported.offset == self.read[partition]


TestTracker = TrackerModel.TestCase
TestTracker.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_key_that_cannot_be_hashed_still_keeps_its_order() -> None:
    tracker = WorkTracker("key")
    tracker.add(
        [record(PARTITIONS[0], 0, {"id": 1}), record(PARTITIONS[0], 1, {"id": 1}), record(PARTITIONS[0], 2, [2])]
    )
    begun = [tracker.next_work(0.0), tracker.next_work(0.0), tracker.next_work(0.0)]
    assert [None if work is None else work.record.offset for work in begun] == [0, 2, None]


def test_the_same_key_in_two_partitions_is_two_queues() -> None:
    tracker = WorkTracker("key")
    tracker.add([record(PARTITIONS[0], 0, b"k"), record(PARTITIONS[1], 0, b"k")])
    assert tracker.next_work(0.0) is not None
    assert tracker.next_work(0.0) is not None


def test_what_failed_is_retried_when_it_is_due() -> None:
    tracker = WorkTracker("key")
    tracker.add([record(PARTITIONS[0], 0, b"k"), record(PARTITIONS[0], 1, b"k")])
    work = tracker.next_work(0.0)
    assert work is not None
    tracker.retry_at(work, 5.0)
    assert tracker.next_due() == 5.0
    assert tracker.next_work(4.9) is None
    assert tracker.next_work(5.0) is work
    assert tracker.next_due() is None


def test_an_unknown_ordering_is_refused() -> None:
    with pytest.raises(ValueError, match="'key', 'partition', 'unordered'"):
        WorkTracker("random")  # type: ignore[arg-type]


# --- ordered queues

Piece = tuple[str | None, int]


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40),
    st.lists(st.integers(0, 10), max_size=100),
)
def test_keys_keep_their_order_and_lose_nothing(names: list[str | None], choices: list[int]) -> None:
    queues: OrderedQueues[Piece] = OrderedQueues()
    waiting = [(name, number) for number, name in enumerate(names)]
    in_progress: list[Piece] = []
    begun: dict[str | None, list[int]] = defaultdict(list)
    turns = iter(choices)
    while waiting or in_progress or queues.ready:
        turn = next(turns, 2)
        if turn % 3 == 0 and waiting:
            piece = waiting.pop(0)
            queues.add(piece[0], piece)
        elif turn % 3 == 1 and in_progress:
            queues.release(in_progress.pop(turn % len(in_progress))[0])
        elif (taken := queues.take()) is not None:
            in_progress.append(taken)
            begun[taken[0]].append(taken[1])
            held = [name for name, _ in in_progress if name is not None]
            assert len(held) == len(set(held))
        elif in_progress:
            queues.release(in_progress.pop(0)[0])
        elif waiting:
            piece = waiting.pop(0)
            queues.add(piece[0], piece)
    assert queues.is_empty
    for name in ("a", "b", "c", None):
        numbers = [number for number, each in enumerate(names) if each == name]
        assert (begun[name] if name is not None else sorted(begun[name])) == numbers


def test_work_of_another_key_does_not_wait() -> None:
    queues: OrderedQueues[str] = OrderedQueues()
    for key, work in (("a", "a1"), ("a", "a2"), ("b", "b1"), (None, "x"), (None, "y")):
        queues.add(key, work)
    assert [queues.take() for _ in range(5)] == ["a1", "b1", "x", "y", None]
    queues.release("a")
    assert queues.take() == "a2"
    queues.release("a")
    queues.release("b")
    assert queues.is_empty


# --- offset progress


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[int], list[int], list[bool]]:
    """Rising offsets with gaps, the order in which they are finished, and when the next one is taken instead."""
    gaps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=30))
    first = draw(st.integers(0, 100))
    offsets = [first + sum(gaps[:number]) for number in range(len(gaps))]
    return offsets, draw(st.permutations(range(len(offsets)))), draw(st.lists(st.booleans(), max_size=60))


@given(lives())
def test_the_position_is_the_first_incomplete_offset(life: tuple[list[int], list[int], list[bool]]) -> None:
    offsets, order, choices = life
    progress = OffsetProgress()
    taken: list[int] = []
    done: set[int] = set()
    waiting = list(offsets)
    turns = iter(choices)
    last = -1
    while len(done) < len(offsets):
        finishable = [offsets[rank] for rank in order if offsets[rank] in taken and offsets[rank] not in done]
        if waiting and (not finishable or next(turns, True)):
            offset = waiting.pop(0)
            progress.take(offset, leader_epoch=offset // 10)
            taken.append(offset)
        else:
            progress.finish(finishable[0])
            done.add(finishable[0])
        incomplete = [offset for offset in taken if offset not in done]
        assert progress.incomplete == len(incomplete)
        assert progress.position == (incomplete[0] if incomplete else taken[-1] + 1)
        assert progress.position >= last
        last = progress.position
        passed = [offset for offset in taken if offset < progress.position]
        assert progress.leader_epoch == (passed[-1] // 10 if passed else -1)
    assert progress.position == offsets[-1] + 1


def test_there_is_nothing_to_commit_until_something_is_done() -> None:
    progress = OffsetProgress()
    assert not progress.is_ahead
    progress.take(7)
    progress.take(8)
    assert not progress.is_ahead
    progress.finish(8)
    assert not progress.is_ahead
    progress.finish(7)
    assert progress.is_ahead
    assert progress.position == 9
    progress.committed = 9
    assert not progress.is_ahead


def test_an_offset_is_taken_once() -> None:
    progress = OffsetProgress()
    progress.take(7)
    assert not progress.may_take(7)
    with pytest.raises(ValueError, match="taken before"):
        progress.take(7)
    progress.finish(7)
    with pytest.raises(ValueError, match="taken before"):
        progress.take(6)
    progress.take(8)
