"""Transactions in a log against plain lists: however they begin, end, are compacted and crash, readers see the same.

Named invariants, checked after every step:
- a read_committed reader sees every record of committed transactions below the last stable offset, and nothing else;
- the last stable offset is the start of the earliest open transaction, or the high watermark;
- a batch whose transaction ended while its coordinator was asked never enters.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from braidlog.storage.cleaner.cleaning_request import CleaningRequest, LastRecord
from braidlog.storage.cleaner.pass_runner import InlinePassRunner
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.producers.verification import VerificationGuard
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_batch
from support.log_kit import START_MS, FailingDisk, Kit

PRODUCERS = st.integers(min_value=1, max_value=3)
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
DAY_MS = 86_400_000


def batch(values: list[bytes], producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    """Every record has a key of its own: compaction may take none that is committed."""
    return build_batch(
        [Record(timestamp=START_MS, key=value, value=value) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=producer_id >= 0,
    )


class Transaction:
    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.result = OPEN


class Producer:
    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.transaction: Transaction | None = None
        # Batches whose coordinator is being asked.
        self.waiting: list[tuple[int, VerificationGuard, bool]] = []


def read_committed(log: UnifiedLog, start: int, max_bytes: int) -> list[tuple[int, bytes | None]]:
    """As a consumer does it: batches of producers in an aborted transaction are skipped up to their marker."""
    found: list[tuple[int, bytes | None]] = []
    at = start
    while True:
        piece = log.read(at, max_bytes, log.last_stable_offset)
        if piece.slice is None:
            return found
        data = piece.slice.read()
        aborted = sorted(log.aborted_transactions(at, piece.next_offset), key=lambda txn: txn.first_offset)
        skipped: set[int] = set()
        for header in iterate_headers(data, 0, len(data)):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [(r.offset, r.value) for r in read_batch(data, header) if r.offset >= start]
        at = piece.next_offset


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="braidlog-transactions-"))
        self.disk = FailingDisk()
        self.kit = Kit(self.root, self.disk, capacity=4, segment_bytes=600, index_interval_bytes=0)
        self.log = self.kit.open()
        self.producers = {number: Producer(number) for number in range(1, 4)}
        # (offset, value, transaction), none for records outside of any.
        self.records: list[tuple[int, bytes, Transaction | None]] = []
        self.transactions: list[Transaction] = []
        self.serial = 0
        self.first_dirty = 0

    def teardown(self) -> None:
        self.log.close(flush=False)
        shutil.rmtree(self.root)

    def _value(self) -> bytes:
        self.serial += 1
        return b"v%d" % self.serial

    def _commit(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _append(self, producer: Producer, count: int) -> None:
        values = [self._value() for _ in range(count)]
        data = batch(values, producer.producer_id, producer.epoch, producer.sequence)
        info = self.kit.append(self.log, data)
        self._commit()
        if producer.transaction is None:
            producer.transaction = Transaction(info.first_offset)
            self.transactions.append(producer.transaction)
        producer.sequence += count
        self.records += [(info.first_offset + n, value, producer.transaction) for n, value in enumerate(values)]

    @rule(count=st.integers(min_value=1, max_value=3))
    def plain(self, count: int) -> None:
        values = [self._value() for _ in range(count)]
        info = self.kit.append(self.log, batch(values))
        self._commit()
        self.records += [(info.first_offset + n, value, None) for n, value in enumerate(values)]

    @rule(number=PRODUCERS, count=st.integers(min_value=1, max_value=3))
    def transactional(self, number: int, count: int) -> None:
        """The coordinator, if it must be asked, says yes at once."""
        producer = self.producers[number]
        held = self.log.producer_state.begin_verification(
            number, producer.epoch, producer.sequence, self.kit.clock.wall_ms()
        )
        assert (held is None) == (producer.transaction is not None)
        assert self.log.producer_state.may_write(number, producer.epoch, held)
        self._append(producer, count)
        producer.waiting = [(epoch, verification, True) for epoch, verification, _ in producer.waiting]

    @rule(number=PRODUCERS)
    def asks(self, number: int) -> None:
        """A batch whose coordinator takes its time."""
        producer = self.producers[number]
        held = self.log.producer_state.begin_verification(
            number, producer.epoch, producer.sequence, self.kit.clock.wall_ms()
        )
        if held is not None:
            producer.waiting.append((producer.epoch, held, False))

    @rule(number=PRODUCERS)
    def is_answered(self, number: int) -> None:
        producer = self.producers[number]
        if producer.waiting:
            epoch, held, lapsed = producer.waiting.pop(0)
            welcome = self.log.producer_state.may_write(number, epoch, held)
            assert welcome == (not lapsed or (epoch == producer.epoch and producer.transaction is not None))
            if welcome and epoch == producer.epoch:
                self._append(producer, 1)
                producer.waiting = [(e, verification, True) for e, verification, _ in producer.waiting]

    @rule(number=PRODUCERS, commits=st.booleans(), bumps=st.booleans(), again=st.booleans())
    def end(self, number: int, commits: bool, bumps: bool, again: bool) -> None:
        """Also where nothing was written here; `bumps` as transactions of version 2 do, `again` for a retry."""
        producer = self.producers[number]
        epoch = producer.epoch + (1 if bumps else 0)
        for _ in range(2 if again else 1):
            self.kit.marker(self.log, number, epoch, commit=commits)
        self._commit()
        if producer.transaction is not None:
            producer.transaction.result = COMMITTED if commits else ABORTED
            producer.transaction = None
        if bumps:
            producer.epoch = epoch
            producer.sequence = 0
        producer.waiting = [(e, verification, True) for e, verification, _ in producer.waiting]

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(again=st.booleans())
    def compact(self, again: bool) -> None:
        """Also a second time, when markers that no data is left of may go."""
        self._compact()
        if again:
            self.time_passes(30)
            self._compact()

    def _compact(self) -> None:
        """All but the active segment, up to the first open transaction."""
        log = self.log
        log.roll()
        segments = log.segments
        uppers = [segment.base_offset for segment in segments[1:]]
        sources = [segment for segment, upper in zip(segments, uppers, strict=False) if upper <= log.last_stable_offset]
        if not sources:
            return
        request = CleaningRequest(
            directory=log.directory,
            segments=tuple((segment.base_offset, segment.size) for segment in sources),
            first_dirty=max(self.first_dirty, log.log_start_offset),
            first_uncleanable=uppers[len(sources) - 1],
            now_ms=self.kit.clock.wall_ms(),
            delete_retention_ms=DAY_MS,
            max_segment_bytes=1200,
            max_index_bytes=1 << 20,
            index_interval_bytes=0,
            producers=tuple(LastRecord(*each) for each in log.producer_state.last_records()),
            aborted_later=tuple(log.aborted_transactions(uppers[len(sources) - 1], uppers[len(sources) - 1] + 1)),
        )
        result = InlinePassRunner(self.disk).run(request, lambda: False)
        by_base = {segment.base_offset: segment for segment in sources}
        for group in result.groups:
            replaced = [by_base[base_offset] for base_offset in group.replaces]
            for deleted in log.replace_segments([log.open_cleaned(group.base_offset)], replaced):
                deleted.remove()
        self.first_dirty = result.end_offset

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Clean, or killed with all that was written; questions to the coordinator do not survive."""
        end = self.log.log_end_offset
        self.log.close(flush=clean)
        self.log = self.kit.open(clean=clean, high_watermark=end)
        for producer in self.producers.values():
            producer.waiting = []

    @precondition(lambda self: self.log.log_end_offset > 0)
    @rule(share=st.floats(min_value=0, max_value=1))
    def delete_records(self, share: float) -> None:
        self.log.increment_log_start_offset(int(share * self.log.high_watermark))

    @rule(hours=st.sampled_from([1, 30]))
    def time_passes(self, hours: int) -> None:
        """Producers are forgotten after a day, unless their transaction is open."""
        self.kit.clock.advance(hours * 3600.0)
        self.log.producer_state.remove_expired(self.kit.clock.wall_ms())
        known = {entry.producer_id for entry in self.log.producer_state.producers.values()}
        for producer in self.producers.values():
            if producer.transaction is not None:
                assert producer.producer_id in known
            elif producer.producer_id not in known:
                # It comes back as a new producer would: with a new epoch, which starts at 0.
                producer.epoch += 1
                producer.sequence = 0
                producer.waiting = []

    @invariant()
    def the_last_stable_offset_is_where_the_earliest_open_transaction_begins(self) -> None:
        opened = [txn.first_offset for txn in self.transactions if txn.result == OPEN]
        stable = min(opened, default=self.log.high_watermark)
        assert self.log.last_stable_offset == max(stable, self.log.log_start_offset)
        assert self.log.producer_state.first_unstable_offset() == min(opened, default=-1)

    @invariant()
    def readers_of_committed_data_see_that_and_nothing_else(self) -> None:
        start, stable = self.log.log_start_offset, self.log.last_stable_offset
        expected = [
            (offset, value)
            for offset, value, txn in self.records
            if start <= offset < stable and (txn is None or txn.result == COMMITTED)
        ]
        assert read_committed(self.log, start, 1 << 20) == expected
        assert read_committed(self.log, start, 200) == expected
        middle = (start + stable) // 2
        assert read_committed(self.log, middle, 90) == [each for each in expected if each[0] >= middle]


TransactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTransactions = TransactionMachine.TestCase
