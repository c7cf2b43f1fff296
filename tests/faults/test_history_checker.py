"""The checker of client histories finds nothing in sound ones, and each anomaly in a history that was doctored."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from braidlog.core.types import TopicPartition
from support.client_history import (
    Acknowledged,
    CommittedOffset,
    CommittingOffset,
    Ended,
    Ending,
    FetchedOffset,
    FetchingOffset,
    GaveUp,
    HistoryRecorder,
    Operation,
    Read,
    Scanned,
    Sent,
    TopicRules,
)
from support.history_checker import Anomaly, judge

RULES: Final = {"plain": TopicRules(idempotent=False), "compacted": TopicRules(compacted=True)}
PLAIN: Final = TopicPartition("plain", 0)
NUMBERED: Final = [TopicPartition("numbered", number) for number in range(2)]
COMPACTED: Final = TopicPartition("compacted", 0)
BANK: Final = [TopicPartition("bank", number) for number in range(2)]
GROUP: Final = "readers"

T = TypeVar("T")


class SoundCluster:
    """One log a partition; everything that may go wrong outside of it does: answers are lost, clients give up."""

    def __init__(self, chooser: random.Random) -> None:
        self.random = chooser
        self.history: list[Operation] = []
        # None: a marker, or a record of a transaction that was aborted.
        self.logs: dict[TopicPartition, list[bytes | None]] = {p: [] for p in [PLAIN, *NUMBERED, COMPACTED, *BANK]}
        self.keys: dict[bytes, bytes] = {}
        self._count = 0
        self._position: dict[tuple[str, TopicPartition], int] = {}
        self._session: dict[str, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def _next(self, writer: str) -> bytes:
        self._count += 1
        return f"{writer}/{self._count} padding".encode()

    def write(self) -> None:
        partition = self.random.choice([PLAIN, *NUMBERED, COMPACTED])
        writer = self.random.choice("ab")
        value = self._next(writer)
        key = f"{writer}{self.random.randrange(2)}".encode() if partition == COMPACTED else None
        self.history.append(Sent(writer, partition, value, key))
        if key is not None:
            self.keys[value] = key
        written = self.random.random() < 0.9
        if written:
            self.logs[partition].append(value)
            if partition == PLAIN and self.random.random() < 0.2:
                self.logs[partition].append(value)
        if written and self.random.random() < 0.8:
            offset = self.random.choice([-1, self.logs[partition].index(value)])
            self.history.append(Acknowledged(partition, value, offset))
        else:
            self.history.append(GaveUp(value, "nobody answers"))

    def transact(self) -> None:
        name = f"transaction-{self._count}"
        records = [Sent("teller", self.random.choice(BANK), self._next("teller"), None, name) for _ in range(3)]
        self.history += records
        commits = self.random.random() < 0.7
        self.history.append(Ending(name, commits))
        happened = self.random.random() < 0.8
        for record in records:
            self.logs[record.partition].append(record.value if commits and happened else None)
        for partition in BANK:
            self.logs[partition].append(None)
        if happened and self.random.random() < 0.8:
            self.history.append(Ended(name, commits))

    def read(self) -> None:
        reader = self.random.choice(["r1", "r2"])
        partition = self.random.choice(list(self.logs))
        if self.random.random() < 0.1:
            self._session[reader] = self._session.get(reader, 0) + 1
            for known in list(self._position):
                if known[0] == reader:
                    del self._position[known]
        self._read_on(reader, partition, self._session.get(reader, 0))

    def read_as_group(self) -> None:
        partition = self.random.choice(list(self.logs))
        if self.random.random() < 0.2:
            self._session[GROUP] = self._session.get(GROUP, 0) + 1
            for each in self.logs:
                self.history += [FetchingOffset(GROUP, each), FetchedOffset(GROUP, each, self._committed.get(each, -1))]
                self._position[GROUP, each] = max(0, self._committed.get(each, 0))
        self._read_on(GROUP, partition, self._session.get(GROUP, 0))
        offset = self._position[GROUP, partition]
        if offset > self._committed.get(partition, -1):
            self.history.append(CommittingOffset(GROUP, partition, offset))
            if self.random.random() < 0.8:
                self._committed[partition] = offset
                if self.random.random() < 0.8:
                    self.history.append(CommittedOffset(GROUP, partition, offset))

    def _read_on(self, reader: str, partition: TopicPartition, session: int) -> None:
        start = self._position.get((reader, partition), 0)
        end = min(len(self.logs[partition]), start + self.random.randrange(4))
        for offset in range(start, end):
            value = self.logs[partition][offset]
            if value is not None:
                self.history.append(Read(reader, session, partition, offset, value))
        self._position[reader, partition] = end

    def end(self) -> list[Operation]:
        for partition, log in self.logs.items():
            records = [(offset, value) for offset, value in enumerate(log) if value is not None]
            if partition == COMPACTED:
                newest = {self.keys[value]: offset for offset, value in records}
                records = [each for each in records if newest[self.keys[each[1]]] == each[0]]
            self.history.append(Scanned(partition, tuple(records)))
        return self.history


def sound_history(chooser: random.Random) -> list[Operation]:
    cluster = SoundCluster(chooser)
    steps = [cluster.write, cluster.write, cluster.transact, cluster.read, cluster.read_as_group]
    for _ in range(chooser.randrange(10, 120)):
        chooser.choice(steps)()
    return cluster.end()


# A seed, not a source of choices: ten times as fast.
randoms = st.integers(0, 2**32).map(random.Random)


@given(randoms)
def test_nothing_is_found_in_a_sound_history(chooser: random.Random) -> None:
    assert judge(sound_history(chooser), RULES).findings == ()


# Each takes a sound history and spoils it, or gives up on one that has no place for it.


def scan_of(history: list[Operation], partition: TopicPartition) -> int:
    return max(i for i, each in enumerate(history) if isinstance(each, Scanned) and each.partition == partition)


def change_scan(
    history: list[Operation], partition: TopicPartition, change: Callable[[list[tuple[int, bytes]]], None]
) -> None:
    at = scan_of(history, partition)
    scan = history[at]
    assert isinstance(scan, Scanned)
    records = list(scan.records)
    change(records)
    history[at] = replace(scan, records=tuple(records))


def some(chooser: random.Random, choices: list[T]) -> T:
    assume(choices)
    return chooser.choice(choices)


def lose(history: list[Operation], chooser: random.Random) -> None:
    acknowledged = {each.value: each for each in history if isinstance(each, Acknowledged)}
    lost = some(chooser, [each for each in acknowledged.values() if each.partition in [PLAIN, *NUMBERED]])
    change_scan(history, lost.partition, lambda records: _keep(records, lambda value: value != lost.value))


def lose_what_was_read(history: list[Operation], chooser: random.Random) -> None:
    lost = some(chooser, [each for each in history if isinstance(each, Read) and each.partition in NUMBERED])
    change_scan(history, lost.partition, lambda records: _keep(records, lambda value: value != lost.value))


def lose_the_newest_of_a_key(history: list[Operation], chooser: random.Random) -> None:
    sent = {each.value: each for each in history if isinstance(each, Sent)}
    known = {each.value for each in history if isinstance(each, Acknowledged)}
    scan = history[scan_of(history, COMPACTED)]
    assert isinstance(scan, Scanned)
    lost = some(chooser, [value for _, value in scan.records if value in known])
    key = sent[lost].key
    change_scan(history, COMPACTED, lambda records: _keep(records, lambda value: sent[value].key != key))


def lose_a_transaction(history: list[Operation], chooser: random.Random) -> None:
    name = some(chooser, [each.transaction for each in history if isinstance(each, Ended) and each.commits])
    whole = {each.value for each in history if isinstance(each, Sent) and each.transaction == name}
    for partition in BANK:
        change_scan(history, partition, lambda records: _keep(records, lambda value: value not in whole))


def tear(history: list[Operation], chooser: random.Random) -> None:
    partition = chooser.choice(BANK)
    scan = history[scan_of(history, partition)]
    assert isinstance(scan, Scanned)
    _, torn = some(chooser, list(scan.records))
    change_scan(history, partition, lambda records: _keep(records, lambda value: value != torn))


def double(history: list[Operation], chooser: random.Random) -> None:
    partition = chooser.choice(NUMBERED)
    scan = history[scan_of(history, partition)]
    assert isinstance(scan, Scanned)
    _, value = some(chooser, list(scan.records))
    change_scan(history, partition, lambda records: records.append((records[-1][0] + 1, value)))


def reorder(history: list[Operation], chooser: random.Random) -> None:
    partition = chooser.choice(NUMBERED)
    scan = history[scan_of(history, partition)]
    assert isinstance(scan, Scanned)
    own = [index for index, (_, value) in enumerate(scan.records) if value.startswith(b"a/")]
    assume(len(own) > 1)
    first, second = own[0], own[-1]

    def swap(records: list[tuple[int, bytes]]) -> None:
        (at, value), (later, other) = records[first], records[second]
        records[first], records[second] = (at, other), (later, value)

    # Nobody has seen where they were.
    history[:] = [
        replace(each, offset=-1) if isinstance(each, Acknowledged) else each
        for each in history
        if not isinstance(each, Read)
    ]
    change_scan(history, partition, swap)


def abort_what_is_there(history: list[Operation], chooser: random.Random) -> None:
    at = some(chooser, [index for index, each in enumerate(history) if isinstance(each, Ended) and each.commits])
    ended = history[at]
    assert isinstance(ended, Ended)
    history[at : at + 1] = [Ending(ended.transaction, False), Ended(ended.transaction, False)]


def make_up(history: list[Operation], chooser: random.Random) -> None:
    partition = chooser.choice(NUMBERED)
    change_scan(history, partition, lambda records: records.append((10_000, b"a/never")))


def move_to_another_partition(history: list[Operation], chooser: random.Random) -> None:
    sent = some(chooser, [each for each in history if isinstance(each, Sent) and each.partition == NUMBERED[0]])
    change_scan(history, NUMBERED[1], lambda records: records.append((10_000, sent.value)))


def show_what_was_aborted(history: list[Operation], chooser: random.Random) -> None:
    name = some(chooser, [each.transaction for each in history if isinstance(each, Ending) and not each.commits])
    sent = next(each for each in history if isinstance(each, Sent) and each.transaction == name)
    change_scan(history, sent.partition, lambda records: records.append((10_000, sent.value)))


def read_before_the_commit(history: list[Operation], chooser: random.Random) -> None:
    at = some(chooser, [index for index, each in enumerate(history) if isinstance(each, Ending) and each.commits])
    sent = history[at - 1]
    assert isinstance(sent, Sent)
    history.insert(at, Read("dirty", 0, sent.partition, 0, sent.value))


def replace_what_was_readable(history: list[Operation], chooser: random.Random) -> None:
    read = some(chooser, [each for each in history if isinstance(each, Read) and each.partition in NUMBERED])
    value = b"b/other"
    history.insert(0, Sent("b", read.partition, value))
    history.append(Read("late", 0, read.partition, read.offset, value))


def replace_what_was_acknowledged(history: list[Operation], chooser: random.Random) -> None:
    known = [each for each in history if isinstance(each, Acknowledged) and each.offset >= 0]
    acknowledged = some(chooser, [each for each in known if each.partition in NUMBERED])
    history.insert(0, Sent("b", acknowledged.partition, b"b/other"))
    history.append(Read("late", 0, acknowledged.partition, acknowledged.offset, b"b/other"))


def go_back(history: list[Operation], chooser: random.Random) -> None:
    at = some(chooser, [index for index, each in enumerate(history) if isinstance(each, Read)])
    history.insert(at + 1, history[at])


def skip(history: list[Operation], chooser: random.Random) -> None:
    sessions: dict[tuple[str, int, TopicPartition], list[int]] = {}
    for index, each in enumerate(history):
        if isinstance(each, Read) and each.partition != COMPACTED:
            sessions.setdefault((each.reader, each.session, each.partition), []).append(index)
    inner = some(chooser, [index for reads in sessions.values() for index in reads[1:-1]])
    del history[inner]


def commit_what_was_not_read(history: list[Operation], chooser: random.Random) -> None:
    partition = chooser.choice(NUMBERED)
    scan = history[scan_of(history, partition)]
    assert isinstance(scan, Scanned)
    assume(scan.records)
    history += [CommittingOffset("hasty", partition, 10_000), CommittedOffset("hasty", partition, 10_000)]


def take_an_offset_back(history: list[Operation], chooser: random.Random) -> None:
    told = some(chooser, [each for each in history if isinstance(each, CommittedOffset)])
    history += [FetchingOffset(GROUP, told.partition), FetchedOffset(GROUP, told.partition, told.offset - 1)]


def forget_an_offset_that_was_fetched(history: list[Operation], chooser: random.Random) -> None:
    told = some(chooser, [each for each in history if isinstance(each, FetchedOffset) and each.offset >= 0])
    history += [FetchingOffset(GROUP, told.partition), FetchedOffset(GROUP, told.partition, -1)]


def make_an_offset_up(history: list[Operation], chooser: random.Random) -> None:
    history += [FetchingOffset(GROUP, PLAIN), FetchedOffset(GROUP, PLAIN, 10_000)]


def _keep(records: list[tuple[int, bytes]], wanted: Callable[[bytes], bool]) -> None:
    records[:] = [each for each in records if wanted(each[1])]


DOCTORED: Final = [
    (lose, Anomaly.LOST),
    (lose_what_was_read, Anomaly.LOST),
    (lose_the_newest_of_a_key, Anomaly.LOST),
    (lose_a_transaction, Anomaly.LOST),
    (tear, Anomaly.TORN),
    (double, Anomaly.DOUBLED),
    (reorder, Anomaly.REORDERED),
    (make_up, Anomaly.PHANTOM),
    (move_to_another_partition, Anomaly.PHANTOM),
    (show_what_was_aborted, Anomaly.PHANTOM),
    (read_before_the_commit, Anomaly.PHANTOM),
    (abort_what_is_there, Anomaly.PHANTOM),
    (make_an_offset_up, Anomaly.PHANTOM),
    (replace_what_was_readable, Anomaly.STALE),
    (replace_what_was_acknowledged, Anomaly.STALE),
    (go_back, Anomaly.STALE),
    (skip, Anomaly.SKIPPED),
    (commit_what_was_not_read, Anomaly.SKIPPED),
    (take_an_offset_back, Anomaly.OFFSET_WENT_BACK),
    (forget_an_offset_that_was_fetched, Anomaly.OFFSET_WENT_BACK),
]


@pytest.mark.parametrize(("doctor", "anomaly"), DOCTORED, ids=[doctor.__name__ for doctor, _ in DOCTORED])
@settings(max_examples=30)
@given(chooser=randoms)
def test_each_anomaly_is_found(
    doctor: Callable[[list[Operation], random.Random], None], anomaly: Anomaly, chooser: random.Random
) -> None:
    history = sound_history(chooser)
    doctor(history, chooser)
    assert anomaly in judge(history, RULES).anomalies


def test_the_verdict_counts_what_was_done() -> None:
    (here, there) = BANK
    history = [
        Sent("a", here, b"a/1", None, "one"), Acknowledged(here, b"a/1", 0),
        Sent("a", there, b"a/2", None, "one"), GaveUp(b"a/2", "late"),
        Ending("one", False), Ended("one", False),
        Sent("a", here, b"a/3", None, "two"), GaveUp(b"a/3", "late"), Ending("two", True), Ended("two", True),
        Sent("a", here, b"a/4", None, "three"), Ending("three", True),
        Read("r", 0, here, 2, b"a/3"), CommittingOffset("g", there, 1), CommittedOffset("g", there, 1),
    ]  # fmt: skip
    verdict = judge(history)
    assert verdict == (4, 1, 1, 1, 1, 1, 1, 1, ())


def test_what_was_only_to_be_aborted_is_not_given_up() -> None:
    (here, there) = BANK
    history = [
        Sent("a", here, b"a/1", None, "one"), GaveUp(b"a/1", "purged"), Ending("one", False),
        Sent("a", there, b"a/2", None, "two"), GaveUp(b"a/2", "purged"), Ending("two", True), Ending("two", False),
    ]  # fmt: skip
    verdict = judge(history)
    assert (verdict.gave_up, verdict.in_doubt, verdict.findings) == (1, 2, ())


def test_a_finding_names_the_record_without_its_padding() -> None:
    lost = [Sent("a", PLAIN, b"a/1 ....."), Acknowledged(PLAIN, b"a/1 .....", 7), Scanned(PLAIN, ())]
    (finding,) = judge(lost).findings
    assert str(finding) == "lost: plain-0: a/1 was acknowledged at offset 7 and is gone"


def test_records_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="a/1 was sent twice"):
        judge([Sent("a", PLAIN, b"a/1"), Sent("b", PLAIN, b"a/1")])


def test_a_recorder_keeps_what_was_noted_in_order() -> None:
    recorder = HistoryRecorder(RULES)
    recorder.note(Sent("a", PLAIN, b"a/1"))
    recorder.note(Acknowledged(PLAIN, b"a/1"), Scanned(PLAIN, ((0, b"a/1"),)))
    assert len(recorder) == 3
    assert judge(recorder.operations, recorder.rules).findings == ()
