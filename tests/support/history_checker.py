"""Judges a history of clients (`client_history`): what was lost, doubled, reordered, torn, made up, skipped or stale.

The laws, for a cluster whose faults stay within its budget:

- What was acknowledged, or read once, is there in the end. Of a compacted topic: it, or a later one of its key.
- An offset that was once acknowledged or readable never holds another record.
- A record is there once, and the records of one writer stand in the order in which it sent them.
- A transaction is there as a whole or not at all; nobody reads it before its commit was asked for.
- Nobody reads what nobody sent.
- A reader goes forward, and leaves nothing out that is there in the end.
- A group's committed offset never goes back, and is one that was sent.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, assert_never

from braidlog.core.types import TopicPartition
from support.client_history import (
    DEFAULT_RULES,
    Acknowledged,
    CommittedOffset,
    CommittingOffset,
    Ended,
    Ending,
    FetchedOffset,
    FetchingOffset,
    GaveUp,
    Operation,
    Read,
    Scanned,
    Sent,
    TopicRules,
)

_Offset: TypeAlias = tuple[TopicPartition, int]
_GroupPartition: TypeAlias = tuple[str, TopicPartition]


class Anomaly(enum.StrEnum):
    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    TORN = "torn"
    PHANTOM = "phantom"
    STALE = "stale"
    SKIPPED = "skipped"
    OFFSET_WENT_BACK = "committed offset went back"


class Finding(NamedTuple):
    anomaly: Anomaly
    partition: TopicPartition
    text: str
    # Of the record in question, where one is to blame.
    writer: str = ""

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.partition.topic}-{self.partition.partition}: {self.text}"


class Verdict(NamedTuple):
    """How much a history tells, and what is wrong with it."""

    sent: int
    acknowledged: int
    # But for what a client dropped when it aborted its transaction.
    gave_up: int
    read: int
    committed: int
    aborted: int
    # Transactions of which nobody knows how they ended.
    in_doubt: int
    offsets_committed: int
    findings: tuple[Finding, ...]

    @property
    def anomalies(self) -> Counter[Anomaly]:
        return Counter(finding.anomaly for finding in self.findings)


def judge(history: Iterable[Operation], rules: Mapping[str, TopicRules] | None = None) -> Verdict:
    """`rules` by topic; one that is not named holds idempotent writers to everything."""
    operations = list(history)
    checker = _Checker(rules or {}, abandoned_transactions(operations))
    for operation in operations:
        checker.take(operation)
    return checker.verdict()


class _Transaction:
    def __init__(self) -> None:
        self.records: list[Sent] = []
        self.commit_asked = False
        # None: unknown.
        self.committed: bool | None = None


def abandoned_transactions(operations: Collection[Operation]) -> set[str]:
    """Those that were aborted, and those that were only ever to be: nobody misses what a client purged of them."""
    endings = [each for each in operations if isinstance(each, Ending)]
    to_be_committed = {each.transaction for each in endings if each.commits}
    aborted = {each.transaction for each in operations if isinstance(each, Ended) and not each.commits}
    return aborted | {each.transaction for each in endings if each.transaction not in to_be_committed}


class _Checker:
    def __init__(self, rules: Mapping[str, TopicRules], abandoned: Collection[str]) -> None:
        self._rules = rules
        self._abandoned = abandoned
        self._findings: list[Finding] = []
        # By value, in the order of sending; and the number of a record among those of its writer in its partition.
        self._sent: dict[bytes, Sent] = {}
        self._numbers: dict[bytes, int] = {}
        self._counts: Counter[tuple[str, TopicPartition]] = Counter()
        self._acknowledged: dict[bytes, None] = {}
        self._gave_up: dict[bytes, None] = {}
        self._transactions: dict[str, _Transaction] = {}
        # What an offset was seen to hold first, and where a record was seen first.
        self._held: dict[_Offset, bytes] = {}
        self._place: dict[bytes, _Offset] = {}
        self._read_count = 0
        self._read: dict[bytes, None] = {}
        # Offsets that were read, in order, in each session of each reader.
        self._sessions: dict[tuple[str, int, TopicPartition], list[int]] = {}
        self._scans: dict[TopicPartition, dict[int, bytes]] = {}
        self._offsets_committed = 0
        self._sent_offset: dict[_GroupPartition, int] = {}
        # The greatest that was acknowledged or fetched, now and when the fetch under way was asked.
        self._promised: dict[_GroupPartition, int] = {}
        self._promised_when_asked: dict[_GroupPartition, int] = {}

    def take(self, operation: Operation) -> None:
        match operation:
            case Sent():
                self._take_sent(operation)
            case Acknowledged(partition, value, offset):
                self._acknowledged[value] = None
                if offset >= 0:
                    self._saw(partition, offset, value, "acknowledged")
            case GaveUp(value):
                self._gave_up[value] = None
            case Ending(name, commits):
                transaction = self._transactions.setdefault(name, _Transaction())
                transaction.commit_asked = transaction.commit_asked or commits
            case Ended(name, commits):
                self._transactions.setdefault(name, _Transaction()).committed = commits
            case Read():
                self._take_read(operation)
            case CommittingOffset(group, partition, offset):
                key = (group, partition)
                self._sent_offset[key] = max(offset, self._sent_offset.get(key, -1))
            case CommittedOffset(group, partition, offset):
                self._offsets_committed += 1
                self._promise((group, partition), offset)
            case FetchingOffset(group, partition):
                self._promised_when_asked[group, partition] = self._promised.get((group, partition), -1)
            case FetchedOffset(group, partition, offset):
                self._take_fetched_offset((group, partition), offset)
            case Scanned(partition, records):
                self._take_scan(partition, records)
            case _:
                assert_never(operation)

    def verdict(self) -> Verdict:
        self._check_order()
        for partition, scan in self._scans.items():
            self._check_whole(partition, scan)
        self._check_transactions()
        self._check_nothing_skipped()
        ends = Counter(transaction.committed for transaction in self._transactions.values())
        return Verdict(
            sent=len(self._sent),
            acknowledged=len(self._acknowledged),
            gave_up=sum(not self._was_aborted(value) for value in self._gave_up),
            read=self._read_count,
            committed=ends[True],
            aborted=ends[False],
            in_doubt=ends[None],
            offsets_committed=self._offsets_committed,
            findings=tuple(self._findings),
        )

    def _was_aborted(self, value: bytes) -> bool:
        return self._sent[value].transaction in self._abandoned

    def _find(self, anomaly: Anomaly, partition: TopicPartition, text: str, writer: str = "") -> None:
        self._findings.append(Finding(anomaly, partition, text, writer))

    def _rules_of(self, partition: TopicPartition) -> TopicRules:
        return self._rules.get(partition.topic, DEFAULT_RULES)

    # While the history is read

    def _take_sent(self, record: Sent) -> None:
        if record.value in self._sent:
            raise ValueError(f"{_name(record.value)} was sent twice: records of a history have values of their own")
        self._sent[record.value] = record
        whose = (record.writer, record.partition)
        self._numbers[record.value] = self._counts[whose]
        self._counts[whose] += 1
        if record.transaction is not None:
            self._transactions.setdefault(record.transaction, _Transaction()).records.append(record)

    def _take_read(self, read: Read) -> None:
        self._read_count += 1
        offsets = self._sessions.setdefault((read.reader, read.session, read.partition), [])
        if offsets and read.offset <= offsets[-1]:
            text = f"{read.reader} read offset {read.offset} after {offsets[-1]}"
            self._find(Anomaly.STALE, read.partition, text)
        else:
            offsets.append(read.offset)
        self._saw_readable(read.partition, read.offset, read.value, f"read by {read.reader}")

    def _take_scan(self, partition: TopicPartition, records: Sequence[tuple[int, bytes]]) -> None:
        # Of several the last one counts as the end; each is a reading.
        last = -1
        for offset, value in records:
            if offset <= last:
                self._find(Anomaly.STALE, partition, f"offset {offset} follows {last} in the last reading")
            last = offset
            self._saw_readable(partition, offset, value, "found in the end")
        self._scans[partition] = dict(records)

    def _saw_readable(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        record = self._sent.get(value)
        if record is None or record.partition != partition:
            where = "nowhere" if record is None else f"to partition {record.partition.partition}"
            self._find(Anomaly.PHANTOM, partition, f"{_name(value)}, {how} at offset {offset}, was sent {where}")
            return
        self._read[value] = None
        if record.transaction is not None and not self._transactions[record.transaction].commit_asked:
            text = f"{_name(value)}, {how} at offset {offset}, belongs to {record.transaction}, which nobody committed"
            self._find(Anomaly.PHANTOM, partition, text)
        self._saw(partition, offset, value, how)

    def _saw(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        held = self._held.setdefault((partition, offset), value)
        if held != value:
            text = f"offset {offset} held {_name(held)}, and {_name(value)} was {how} there"
            self._find(Anomaly.STALE, partition, text)
        at = self._place.setdefault(value, (partition, offset))
        if at != (partition, offset) and self._rules_of(partition).idempotent:
            text = f"{_name(value)} is at offset {at[1]}, and was {how} at {offset}"
            self._find(Anomaly.DOUBLED, partition, text, self._sent[value].writer if value in self._sent else "")

    def _promise(self, key: _GroupPartition, offset: int) -> None:
        self._promised[key] = max(offset, self._promised.get(key, -1))

    def _take_fetched_offset(self, key: _GroupPartition, offset: int) -> None:
        group, partition = key
        promised = self._promised_when_asked.get(key, -1)
        if offset < promised:
            self._find(Anomaly.OFFSET_WENT_BACK, partition, f"{group} had committed {promised}, and {offset} is left")
        if offset > self._sent_offset.get(key, -1):
            self._find(Anomaly.PHANTOM, partition, f"{group} has committed {offset}, which no member sent")
        self._promise(key, offset)

    # At its end

    def _check_order(self) -> None:
        """As the last reading has it; without one, as it was acknowledged and read."""
        last: dict[tuple[str, TopicPartition], bytes] = {}
        found = [(partition, offset, value) for (partition, offset), value in self._held.items()]
        found = [each for each in found if each[0] not in self._scans]
        found += [(partition, *record) for partition, scan in self._scans.items() for record in scan.items()]
        for partition, offset, value in sorted(found):
            record = self._sent.get(value)
            if record is None or not self._rules_of(partition).idempotent:
                continue
            whose = (record.writer, partition)
            before = last.get(whose)
            if before is not None and self._numbers[before] > self._numbers[value]:
                text = f"{_name(value)} at offset {offset} follows {_name(before)}, which was sent after it"
                self._find(Anomaly.REORDERED, partition, text, record.writer)
            else:
                last[whose] = value

    def _check_whole(self, partition: TopicPartition, scan: dict[int, bytes]) -> None:
        there = set(scan.values())
        newest: dict[tuple[str, bytes | None], int] = {}
        for value in there:
            record = self._sent.get(value)
            if record is not None:
                whose = (record.writer, record.key)
                newest[whose] = max(self._numbers[value], newest.get(whose, -1))
        compacted = self._rules_of(partition).compacted
        for value, record in self._sent.items():
            # What a transaction owes is its whole.
            if record.partition != partition or value in there or record.transaction is not None:
                continue
            if compacted and newest.get((record.writer, record.key), -1) > self._numbers[value]:
                continue
            at = self._place.get(value)
            where = "" if at is None else f" at offset {at[1]}"
            if value in self._acknowledged:
                self._find(Anomaly.LOST, partition, f"{_name(value)} was acknowledged{where} and is gone")
            elif value in self._read:
                self._find(Anomaly.LOST, partition, f"{_name(value)} was read{where} and is gone")

    def _check_transactions(self) -> None:
        there = {(partition, value) for partition, scan in self._scans.items() for value in scan.values()}
        for name, transaction in self._transactions.items():
            if not transaction.commit_asked:
                continue
            # Where nothing was scanned nothing is known.
            records = [record for record in transaction.records if record.partition in self._scans]
            if transaction.committed is False:
                # The commit that was asked for first had failed.
                for record in records:
                    if (record.partition, record.value) in there:
                        text = f"{_name(record.value)} is there, and {name} was aborted"
                        self._find(Anomaly.PHANTOM, record.partition, text)
                continue
            missing = [record for record in records if (record.partition, record.value) not in there]
            if not missing:
                continue
            first = missing[0]
            if len(missing) < len(records):
                text = f"{name} has {len(records)} records, and {len(missing)} are gone, first {_name(first.value)}"
                self._find(Anomaly.TORN, first.partition, text)
            elif transaction.committed:
                self._find(Anomaly.LOST, first.partition, f"{name} was committed and is gone")
            elif any(record.value in self._read for record in records):
                self._find(Anomaly.LOST, first.partition, f"{name} was read and is gone")

    def _check_nothing_skipped(self) -> None:
        read_by: dict[_GroupPartition, set[int]] = {}
        for (reader, _, partition), offsets in self._sessions.items():
            read_by.setdefault((reader, partition), set()).update(offsets)
            if self._rules_of(partition).compacted:
                continue
            done = set(offsets)
            there = self._scans.get(partition, ())
            skipped = [offset for offset in there if offsets[0] < offset < offsets[-1] and offset not in done]
            if skipped:
                self._find(Anomaly.SKIPPED, partition, f"{reader} left out {len(skipped)}, first offset {skipped[0]}")
        for (group, partition), committed in self._promised.items():
            if self._rules_of(partition).compacted:
                continue
            read = read_by.get((group, partition), set())
            passed = [offset for offset in self._scans.get(partition, ()) if offset < committed and offset not in read]
            if passed:
                text = f"{group} committed {committed} and never read {len(passed)} before it, first offset {passed[0]}"
                self._find(Anomaly.SKIPPED, partition, text)


def _name(value: bytes) -> str:
    """A record's own part of its value, without what fills it up."""
    return value[:60].split(b" ")[0].decode(errors="replace")
