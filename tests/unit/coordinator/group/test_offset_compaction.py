"""Offsets, inside of transactions and outside, in a real log that is compacted while they are written.

What a replay of the compacted log gives is what the shard believed all along: a transaction that is open stays so, one
that was aborted leaves nothing, and what was deleted does not come back.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from braidlog.config.log_settings import COMPACT, LogSettings
from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.loader import Chunk, load
from braidlog.coordinator.responders import AppendCallback
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.slices import ByteSlice
from braidlog.storage.cleaner.log_cleaner import LogCleaner
from braidlog.storage.cleaner.pass_runner import InlinePassRunner
from braidlog.storage.jobs import run_inline
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from braidlog.wire.records.validation import ORIGIN_COORDINATOR
from support.classic_groups import AnyTopics
from support.manager_fixture import Broker, tp
from support.offsets_shard import OffsetsDriver

OFFSETS = tp("__consumer_offsets")
RETENTION_S = 100
COMPACTED = LogSettings(
    cleanup_policy=(COMPACT,),
    min_cleanable_dirty_ratio=0.0001,
    delete_retention_ms=RETENTION_S * 1000,
    file_delete_delay_ms=0,
)


class CompactedOffsets(OffsetsDriver):
    """Appends what the shard decides to a log on disk; transactions have an epoch each, or share one."""

    def __init__(self, root: Path) -> None:
        self.broker = Broker(root)
        self.broker.topic_settings[OFFSETS.topic] = COMPACTED
        self.broker.start()
        self.disk = self.broker.manager.create(OFFSETS)
        self.cleaner = LogCleaner(self.broker.manager, lambda: InlinePassRunner(self.broker.files))
        self.epochs: dict[int, int] = {}
        super().__init__("t", "u", settings=GroupSettings(offsets_retention_ms=10**15))

    def _append(self, data: bytes) -> int:
        info = self.disk.append_as_leader(
            ByteSlice(data, 0, len(data)), 0, now_ms=self.now.wall_ms, origin=ORIGIN_COORDINATOR
        )
        self.disk.write_staged()
        self.disk.advance_high_watermark(self.disk.log_end_offset)
        return info.first_offset

    def apply(self, effects: Effects) -> None:
        if effects.records:
            producer = (effects.producer_id, effects.producer_epoch)
            first = self._append(
                build_batch(
                    [Record(timestamp=self.now.wall_ms, key=r.key, value=r.value) for r in effects.records],
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    transactional=producer[0] >= 0,
                )
            )
            for index, record in enumerate(effects.records):
                self.shard.replay(ReplayedRecord(first + index, self.now.wall_ms, record.key, record.value, *producer))
        for responder, outcome in effects.replies:
            assert not isinstance(outcome, ProtocolError)
            responder.answer(outcome)

    def write(self, producer_id: int, offsets: dict[tuple[str, int], int]) -> None:
        self.commit_txn(producer_id, "g", offsets, producer_epoch=self.epochs.get(producer_id, 0))

    def end(self, producer_id: int, commits: bool, moves_epoch: bool) -> None:
        epoch = self.epochs.get(producer_id, 0) + moves_epoch
        self.epochs[producer_id] = epoch
        self._append(
            build_end_txn_marker(
                commit=commits, producer_id=producer_id, producer_epoch=epoch, timestamp=self.now.wall_ms
            )
        )
        self.shard.replay_end_transaction_marker(producer_id, epoch, commits)

    def compact(self) -> None:
        self.disk.roll()
        run_inline(self.cleaner.run(), self.broker.manager.failures.fail)
        self.broker.run(self.broker.manager.deletion.due())

    def pass_time(self, seconds: int) -> None:
        self.seconds += seconds
        self.broker.clock.advance(seconds)

    def reloaded(self) -> GroupCoordinatorShard:
        shard = GroupCoordinatorShard(GroupSettings, AnyTopics(), lambda: "m")
        asyncio.run(load(shard, OFFSETS.topic, OFFSETS.partition, self))
        return shard

    def same_after_a_restart(self) -> None:
        assert self.reloaded().offsets.durable_state() == self.shard.offsets.durable_state()

    # The log as a coordinator reads it.

    def append(self, partition: int, batch: bytes, done: AppendCallback) -> int:
        raise NotImplementedError

    def bounds(self, partition: int) -> tuple[int, int]:
        return self.disk.log_start_offset, self.disk.log_end_offset

    async def read(self, partition: int, offset: int) -> Chunk:
        found = self.disk.read(offset, 200, self.disk.high_watermark)
        return Chunk(b"" if found.slice is None else found.slice.read(), found.next_offset)

    def where(self, partition: int, offset: int) -> str:
        return str(self.disk.directory)


class Step(NamedTuple):
    kind: str
    producer: int
    place: tuple[str, int]
    number: int
    flag: bool
    moves_epoch: bool


steps = st.builds(
    Step,
    st.sampled_from(["commit", "write", "write", "end", "end", "delete", "compact", "compact", "wait"]),
    st.sampled_from([7, 8]),
    st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 1)),
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
)


def found_once() -> list[Step]:
    """The abort of 8 lies past the first open transaction, that of 7, and past what can be compacted."""
    written = Step("write", 8, ("t", 0), 0, False, False)
    before = [written._replace(kind="commit"), written, written._replace(kind="compact")]
    return [*before, written._replace(producer=7), written._replace(kind="end"), written._replace(kind="compact")]


@settings(max_examples=60, deadline=None)
@example(found_once())
@given(st.lists(steps, min_size=5, max_size=40))
def test_a_replay_after_compaction_gives_what_the_shard_believed(script: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = CompactedOffsets(Path(directory))
        for step in script:
            if step.kind == "commit":
                world.commit("g", *step.place, step.number)
            elif step.kind == "write":
                world.write(step.producer, {step.place: step.number, ("t", 0): step.number})
            elif step.kind == "end":
                world.end(step.producer, step.flag, step.moves_epoch)
            elif step.kind == "delete":
                world.delete("g", {step.place[0]: [step.place[1]]})
            elif step.kind == "wait":
                world.pass_time(RETENTION_S + 1)
            else:
                world.compact()
                world.same_after_a_restart()
        world.same_after_a_restart()
        world.broker.manager.release()


def test_an_open_transaction_outlives_compaction_and_its_end_counts(tmp_path: Path) -> None:
    world = CompactedOffsets(tmp_path)
    for offset in range(5):
        world.commit("g", "t", 0, offset)
    world.write(8, {("u", 0): 70, ("t", 0): 80})
    world.end(8, commits=False, moves_epoch=True)
    world.compact()
    world.write(7, {("t", 0): 90, ("u", 1): 91})
    world.compact()
    world.commit("g", "u", 1, 6)
    world.pass_time(RETENTION_S + 1)
    world.compact()
    assert world.cleaner.statistics.passes == 1, "nothing at or past the open transaction is touched"
    world.same_after_a_restart()
    world.end(7, commits=True, moves_epoch=True)
    world.compact()
    assert world.cleaner.statistics.passes == 2
    assert len(world.disk.segments) == 2, "what was spared before is compacted now"
    world.same_after_a_restart()
    assert world.offsets_of("g") == {("t", 0): 90, ("u", 1): 6}
    world.broker.manager.release()
