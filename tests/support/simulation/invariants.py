"""What must hold of one broker, each as a function that raises `InvariantBroken` with what it found.

Fault budget: a killed process may take nothing that was acknowledged or read. A power cut may take what was not synced:
in topics with flush.messages=1 nothing that was acknowledged or read, in the others a tail.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from braidlog.broker.broker import Broker
from braidlog.testing.simulated.simulation import Simulation
from support.simulation.frames import Frames
from support.simulation.history import History, PartitionHistory, PartitionRead, Stored, stored


class InvariantBroken(AssertionError):
    pass


def check(holds: bool, message: str) -> None:
    if not holds:
        raise InvariantBroken(message)


# Of every read


def offsets_ascend(partition: PartitionHistory, read: PartitionRead) -> None:
    offsets = [record.offset for record in read.records]
    check(
        all(first < second for first, second in itertools.pairwise(offsets)),
        f"{read.target}: offsets do not ascend: {offsets}",
    )


def offsets_are_contiguous(partition: PartitionHistory, read: PartitionRead) -> None:
    if partition.kind.compacted or partition.may_have_holes or not read.records:
        return
    offsets = [record.offset for record in read.records]
    expected = list(range(read.asked_from, read.asked_from + len(offsets)))
    check(offsets == expected, f"{read.target}: asked from {read.asked_from}, offsets have gaps: {offsets}")


def nothing_beyond_the_high_watermark(partition: PartitionHistory, read: PartitionRead) -> None:
    check(
        read.next_offset <= max(read.high_watermark, read.asked_from),
        f"{read.target}: read up to {read.next_offset}, the high watermark is {read.high_watermark}",
    )


def log_start_is_not_past_the_high_watermark(partition: PartitionHistory, read: PartitionRead) -> None:
    check(
        read.log_start <= read.high_watermark,
        f"{read.target}: log start {read.log_start}, high watermark {read.high_watermark}",
    )


def high_watermark_never_goes_back(partition: PartitionHistory, read: PartitionRead) -> None:
    """No reader is told less than anybody had been told when it asked."""
    check(
        read.high_watermark >= read.told_before,
        f"{read.target}: the high watermark went back from {read.told_before} to {read.high_watermark}",
    )


def records_were_sent(partition: PartitionHistory, read: PartitionRead) -> None:
    for record in read.records:
        check(stored(record).name in partition.sent, f"{read.target}: nobody sent {record!r}")


def a_readable_offset_keeps_its_bytes(partition: PartitionHistory, read: PartitionRead) -> None:
    for record in read.records:
        before = partition.seen.get(record.offset)
        check(
            before is None or before == stored(record),
            f"{read.target}: offset {record.offset} held {before}, now it holds {stored(record)}",
        )


def no_record_appears_twice(partition: PartitionHistory, read: PartitionRead) -> None:
    """A retried batch whose first copy retention took may come again: Kafka forgets its producer with it.

    So may one that a broker no longer knew after a restart, which remembers the last batch alone: its producer goes on
    under another epoch.
    """
    here: dict[str, int] = {}
    for record in read.records:
        name = stored(record).name
        if name in partition.may_repeat:
            continue
        before = here.setdefault(name, record.offset)
        check(before == record.offset, f"{read.target}: {name} is at {before} and at {record.offset}")
        earlier = partition.offset_of.get(name, record.offset)
        forgotten = partition.kind.retained and earlier < read.log_start
        check(
            earlier == record.offset or forgotten,
            f"{read.target}: {name} was read at {earlier} and again at {record.offset}",
        )


def an_acknowledged_offset_holds_its_record(partition: PartitionHistory, read: PartitionRead) -> None:
    for record in read.records:
        promised = partition.acknowledged.get(record.offset)
        check(
            promised is None or promised == stored(record).name,
            f"{read.target}: {promised} was acknowledged at {record.offset}, which holds {stored(record).name}",
        )


EVERY_READ = (
    offsets_ascend,
    offsets_are_contiguous,
    nothing_beyond_the_high_watermark,
    log_start_is_not_past_the_high_watermark,
    high_watermark_never_goes_back,
    records_were_sent,
    a_readable_offset_keeps_its_bytes,
    no_record_appears_twice,
    an_acknowledged_offset_holds_its_record,
)


def observe(partition: PartitionHistory, read: PartitionRead) -> None:
    """Check a read, then remember it."""
    for invariant in EVERY_READ:
        invariant(partition, read)
    partition.high_watermark = max(partition.high_watermark, read.high_watermark)
    partition.log_start = max(partition.log_start, read.log_start)
    for record in read.records:
        partition.seen[record.offset] = stored(record)
        partition.offset_of[stored(record).name] = record.offset


# Of a log that was read from its start to its high watermark


def acknowledged_records_are_there(partition: PartitionHistory, log: dict[int, Stored], start: int, end: int) -> None:
    for offset, name in partition.acknowledged.items():
        if start <= offset < end and offset not in log:
            check(
                partition.kind.compacted and _was_replaced(partition, offset, name),
                f"{partition.target}: {name}, acknowledged at {offset}, is missing ({start} … {end} was read)",
            )
    names = {record.name for record in log.values()} | partition.offset_of.keys()
    for name in partition.acknowledged_somewhere:
        check(
            name in names or partition.kind.retained or partition.kind.compacted,
            f"{partition.target}: {name} was acknowledged and is not there",
        )


def _was_replaced(partition: PartitionHistory, offset: int, name: str) -> bool:
    """By a later record of its key, or by a tombstone that has gone itself before anybody saw it."""
    key = partition.sent[name].key
    if any(later > offset and record.key == key for later, record in partition.seen.items()):
        return True
    return any(
        sent.key == key and sent.is_tombstone and other not in partition.offset_of
        for other, sent in partition.sent.items()
    )


def producers_order_is_kept(partition: PartitionHistory, log: dict[int, Stored], start: int, end: int) -> None:
    last: dict[str, Stored] = {}
    for offset in sorted(log):
        record = log[offset]
        if record.name in partition.may_repeat:
            continue
        before = last.get(record.producer)
        check(
            before is None or before.number < record.number,
            f"{partition.target}: {record.name} at {offset} follows {before}",
        )
        last[record.producer] = record


def the_last_record_of_a_key_stays(partition: PartitionHistory, log: dict[int, Stored], start: int, end: int) -> None:
    if not partition.kind.compacted:
        return
    newest: dict[bytes | None, int] = {}
    for offset, record in partition.seen.items():
        newest[record.key] = max(newest.get(record.key, -1), offset)
    for key, offset in newest.items():
        if offset >= end:
            continue
        tombstone = partition.seen[offset].value is None
        check(
            offset in log or tombstone or offset < start,
            f"{partition.target}: the last record of {key!r}, at {offset}, is gone",
        )
        if tombstone and offset not in log:
            older = [other for other, record in log.items() if record.key == key]
            check(not older, f"{partition.target}: the tombstone of {key!r} went before the records at {older}")


WHOLE_LOG = (acknowledged_records_are_there, producers_order_is_kept, the_last_record_of_a_key_stays)


def examine(partition: PartitionHistory, reads: Sequence[PartitionRead]) -> None:
    """Check a log that `reads` cover from its start to its end."""
    log = {record.offset: stored(record) for read in reads for record in read.records}
    for invariant in WHOLE_LOG:
        invariant(partition, log, reads[-1].log_start, reads[-1].high_watermark)


def what_survived_is_what_was_written(partition: PartitionHistory, reads: Sequence[PartitionRead]) -> None:
    """After a power cut: a log may be shorter, but what is there is what was there."""
    end = reads[-1].high_watermark
    check(
        not partition.kind.synced or end >= max(partition.acknowledged, default=-1) + 1,
        f"{partition.target}: the power cut took acknowledged records: the log ends at {end}, "
        f"{max(partition.acknowledged, default=-1)} was acknowledged",
    )
    check(
        not partition.kind.synced or end >= partition.high_watermark,
        f"{partition.target}: the power cut took what was readable: {end} is less than {partition.high_watermark}",
    )
    partition.high_watermark = min(partition.high_watermark, end)
    partition.forget_from(end)
    left = {record.offset for read in reads for record in read.records}
    if partition.kind.synced:
        gone = [offset for offset in partition.seen if offset >= reads[-1].log_start and offset not in left]
        check(not gone, f"{partition.target}: the power cut took what had been read: {gone}")
    else:
        partition.keep(left)
    partition.acknowledged_somewhere.clear()
    for read in reads:
        observe(partition, read)
    partition.unsettled = False


# Of the broker


def watermarks_are_ordered(broker: Broker) -> None:
    for partition in broker.registry.partitions():
        log = partition.log
        if log is not None:
            marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
            check(list(marks) == sorted(marks), f"{partition}: start, stable, high watermark, end are {marks}")


def idempotence_is_never_lost(history: History) -> None:
    check(not history.lost_track_of, f"the broker lost track of producers: {history.lost_track_of}")


def every_request_was_answered(tap: Frames) -> None:
    unanswered = tap.unanswered()
    check(not unanswered, f"requests without an answer: {unanswered}")


def no_bug_was_met(simulation: Simulation) -> None:
    for problem in simulation.loop.problems:
        raise InvariantBroken(f"a callback failed: {problem}") from problem.get("exception")
    for line, cause in simulation.errors:
        if cause is not None or "bug in braidlog" in line:
            raise InvariantBroken(f"the broker logged: {line}") from cause
