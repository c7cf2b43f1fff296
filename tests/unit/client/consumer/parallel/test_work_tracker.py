"""The books of a parallel consumer against a model: order within queues, nothing committed past undone work."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from braidlog.client.consumer.parallel.work_tracker import ORDERINGS, Ordering, Work, WorkTracker
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.types import TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
KEYS = (b"a", b"b", None)


def record(partition: TopicPartition, offset: int, key: object = None) -> ConsumerRecord:
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, key, b"")


class Books(RuleBasedStateMachine):
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
        self.under_way: list[tuple[Work, int]] = []
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
            assert (work, life) not in self.under_way
            self.resting = [each for each in self.resting if each[0] is not work]
            ordering_key = self._ordering_key(work)
            if ordering_key is not None:
                assert ordering_key not in [self._ordering_key(other) for other, _ in self.under_way]
                key = (ordering_key, life)
                assert work.record.offset >= self.last_begun.get(key, -1)
                self.last_begun[key] = work.record.offset
            self.under_way.append((work, life))

    def _ordering_key(self, work: Work) -> object:
        if self.ordering == "unordered" or (self.ordering == "key" and work.record.key is None):
            return None
        return work.partition if self.ordering == "partition" else (work.partition, work.record.key)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        work, life = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.tracker.finish(work)
        if life == self.life[work.partition]:
            self.done[work.partition].add(work.record.offset)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), delay=st.integers(0, 3))
    def fail(self, data: st.DataObject, delay: int) -> None:
        work, life = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.tracker.put_back(work, self.now + delay)
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
            undone = set(range(self.committed[partition], self.read[partition])) - self.done[partition]
            assert all(each >= offset for each in undone)

    @invariant()
    def the_count_of_undone_records_is_right(self) -> None:
        if hasattr(self, "tracker"):
            expected = sum(self.tracker.undone_of([partition]) for partition in PARTITIONS)
            assert self.tracker.undone == expected
            assert self.tracker.under_way == len(self.under_way)

    def teardown(self) -> None:
        """Whatever happened: finishing everything leaves nothing undone, and everything committed."""
        if not hasattr(self, "tracker"):
            return
        self.now += 100
        while self.under_way or (work := self.tracker.next_work(self.now)) is not None:
            if not self.under_way:
                assert work is not None
                self.under_way.append((work, self.life[work.partition]))
            self.tracker.finish(self.under_way.pop()[0])
        assert self.tracker.undone == 0
        assert self.tracker.ready == 0
        for partition, reported in self.tracker.committable().items():
            assert reported.offset == self.read[partition]


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_key_that_cannot_be_hashed_still_keeps_its_order() -> None:
    tracker = WorkTracker("key")
    tracker.add(
        [record(PARTITIONS[0], 0, {"id": 1}), record(PARTITIONS[0], 1, {"id": 1}), record(PARTITIONS[0], 2, [2])]
    )
    begun = [tracker.next_work(0.0), tracker.next_work(0.0), tracker.next_work(0.0)]
    assert [None if work is None else work.record.offset for work in begun] == [0, 2, None]


def test_the_same_key_in_two_partitions_is_two_lanes() -> None:
    tracker = WorkTracker("key")
    tracker.add([record(PARTITIONS[0], 0, b"k"), record(PARTITIONS[1], 0, b"k")])
    assert tracker.next_work(0.0) is not None
    assert tracker.next_work(0.0) is not None


def test_what_rests_after_a_failure_is_due_in_its_time() -> None:
    tracker = WorkTracker("key")
    tracker.add([record(PARTITIONS[0], 0, b"k"), record(PARTITIONS[0], 1, b"k")])
    work = tracker.next_work(0.0)
    assert work is not None
    tracker.put_back(work, 5.0)
    assert tracker.next_due() == 5.0
    assert tracker.next_work(4.9) is None
    assert tracker.next_work(5.0) is work
    assert tracker.next_due() is None


def test_an_unknown_ordering_is_refused() -> None:
    with pytest.raises(ValueError, match="'key', 'partition', 'unordered'"):
        WorkTracker("random")  # type: ignore[arg-type]
