"""Any interleaving of commits, transactions, deletions, time and crashes, against a model of plain dicts.

What must hold after every step:

- a fetch tells exactly what the model has, so a committed offset never goes back without a request;
- a transaction's offsets count all together or not at all;
- what a replay of the log gives is what is there.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from braidlog.coordinator.group.offset_cleanup import EXPIRY_DUE
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import UnstableOffsetCommitError
from support.offsets_shard import OffsetsDriver

GROUPS = ("g", "h")
TOPICS = ("t", "u")
PARTITIONS = range(2)
PRODUCERS = (7, 8)
RETENTION_S = 600
CHECK_S = 60

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)
partitions = st.sampled_from(PARTITIONS)
producers = st.sampled_from(PRODUCERS)
offsets = st.integers(0, 1_000)


class Place(NamedTuple):
    group_id: str
    topic: str
    partition: int


class Known(NamedTuple):
    """An offset, and when it was written: as a number in the order of all writes, and on the clock."""

    offset: int
    written: int
    at_ms: int
    expires_ms: int | None = None


class Offsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        chosen = GroupSettings(
            offsets_retention_ms=RETENTION_S * 1000,
            offsets_check_interval_ms=CHECK_S * 1000,
            offset_metadata_max_bytes=5,
        )
        self.driver = OffsetsDriver(*TOPICS, settings=chosen)
        self.committed: dict[Place, Known] = {}
        self.pending: dict[int, dict[Place, Known]] = {producer: {} for producer in PRODUCERS}
        self.writes = 0

    def _known(self, offset: int, expires_ms: int | None = None) -> Known:
        self.writes += 1
        return Known(offset, self.writes, self.driver.now.wall_ms, expires_ms)

    def _forget(self, place: Place) -> None:
        self.committed.pop(place, None)
        for written in self.pending.values():
            written.pop(place, None)

    def _is_pending(self, place: Place) -> bool:
        return any(place in written for written in self.pending.values())

    # Requests

    @rule(group=groups, topic=topics, partition=partitions, offset=offsets)
    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        responder = self.driver.commit(group, topic, partition, offset)
        assert responder.response.topics[0].partitions[0].error_code == 0
        self.committed[Place(group, topic, partition)] = self._known(offset)

    @rule(group=groups, topic=topics, partition=partitions, offset=offsets, retention_s=st.integers(0, 1_000))
    def commit_with_a_retention(self, group: str, topic: str, partition: int, offset: int, retention_s: int) -> None:
        self.driver.commit(group, topic, partition, offset, version=3, retention_ms=retention_s * 1000)
        expires = self.driver.now.wall_ms + retention_s * 1000
        self.committed[Place(group, topic, partition)] = self._known(offset, expires)

    @rule(group=groups, topic=topics, partition=partitions)
    def commit_too_much_metadata(self, group: str, topic: str, partition: int) -> None:
        self.driver.commit(group, topic, partition, 1, metadata="too long")

    @rule(producer=producers, group=groups, places=st.dictionaries(st.tuples(topics, partitions), offsets, min_size=1))
    def commit_in_a_transaction(self, producer: int, group: str, places: dict[tuple[str, int], int]) -> None:
        responder = self.driver.commit_txn(producer, group, places)
        assert responder.error is None
        for (topic, partition), offset in places.items():
            self.pending[producer][Place(group, topic, partition)] = self._known(offset)

    @precondition(lambda self: any(self.pending.values()))
    @rule(offset=offsets)
    def commit_beside_a_transaction(self, offset: int) -> None:
        place = next(place for written in self.pending.values() for place in written)
        self.commit(place.group_id, place.topic, place.partition, offset)

    @rule(producer=producers, commits=st.booleans())
    def end_transaction(self, producer: int, commits: bool) -> None:
        self.driver.end_transaction(producer, 0, commits)
        for place, known in self.pending[producer].items():
            before = self.committed.get(place)
            if commits and (before is None or before.written < known.written):
                self.committed[place] = known
        self.pending[producer].clear()

    @rule(group=groups, topic=topics, partition=partitions)
    def delete(self, group: str, topic: str, partition: int) -> None:
        if self.driver.delete(group, {topic: [partition]}).error is None:
            self._forget(Place(group, topic, partition))

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        if group in self.driver.shard.groups:
            self.driver.delete_group(group)
            for place in [*self.committed, *(p for written in self.pending.values() for p in written)]:
                if place.group_id == group:
                    self._forget(place)

    # What happens by itself

    @rule(topic=topics)
    def delete_topic_and_make_it_anew(self, topic: str) -> None:
        self.driver.delete_topic(topic)
        self.driver.topics.there[topic] = None
        for place in [*self.committed, *(p for written in self.pending.values() for p in written)]:
            if place.topic == topic:
                self._forget(place)

    @rule(checks=st.integers(1, 12))
    def time_passes(self, checks: int) -> None:
        """To just after a check, so that the model need not know when within the interval the checks are."""
        for _ in range(checks):
            # Not the next deadline of all: topics that were deleted have one of their own.
            due = self.driver.shard.deadlines.get(EXPIRY_DUE)
            assert due is not None
            self.driver.advance(due - self.driver.seconds)
            now = self.driver.now.wall_ms
            for place, known in list(self.committed.items()):
                expires = known.at_ms + RETENTION_S * 1000 if known.expires_ms is None else known.expires_ms
                if now >= expires and not self._is_pending(place):
                    del self.committed[place]

    @precondition(lambda self: self.driver.log)
    @rule()
    def crash(self) -> None:
        self.driver.crash()

    # What must hold

    @invariant()
    def fetches_tell_the_model(self) -> None:
        for group in GROUPS:
            expected = {
                (p.topic, p.partition): known.offset for p, known in self.committed.items() if p.group_id == group
            }
            assert self.driver.offsets_of(group) == expected

    @invariant()
    def pending_offsets_are_kept_back(self) -> None:
        for group in GROUPS:
            answer = self.driver.fetch(group, {t: list(PARTITIONS) for t in TOPICS}, stable=True).response.groups[0]
            for topic in answer.topics:
                for reported in topic.partitions:
                    unstable = self._is_pending(Place(group, topic.name, reported.partition_index))
                    assert (reported.error_code == UnstableOffsetCommitError.code) == unstable

    @invariant()
    def whoever_has_offsets_is_a_group(self) -> None:
        there = {p.group_id for p in self.committed} | {p.group_id for w in self.pending.values() for p in w}
        assert there <= set(self.driver.shard.groups)

    @invariant()
    def a_replay_gives_the_same(self) -> None:
        assert self.driver.rebuilt().durable_state() == self.driver.shard.durable_state()


Offsets.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_offsets_model = Offsets.TestCase
