"""An invariant that cannot fail proves nothing: each is shown a history that it must refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from braidlog.testing.simulated.disk import FileNode, MemoryDisk
from braidlog.testing.simulated.loop import Process
from braidlog.testing.simulated.simulation import Simulation
from braidlog.wire.records.reading import Record
from support.simulation.history import NAME_HEADER, History, Kind, PartitionHistory, PartitionRead, PartitionTarget
from support.simulation.invariants import (
    InvariantBroken,
    examine,
    idempotence_is_never_lost,
    observe,
    what_survived_is_what_was_written,
)
from support.simulation.settings import settings_for
from support.simulation.workload import Workload

TARGET = PartitionTarget("topic", bytes(16), 0)
PLAIN = Kind("plain", {})
SYNCED = Kind("synced", {}, synced=True)
COMPACTED = Kind("compacted", {}, compacted=True)


def record(offset: int, name: str, value: bytes | None = b"v", key: bytes = b"k") -> Record:
    return Record(offset, 1, key, value, ((NAME_HEADER, name.encode()),))


def read(*records: Record, start: int = 0, high_watermark: int = 100, told_before: int = 0) -> PartitionRead:
    asked_from = records[0].offset if records else 0
    end = records[-1].offset + 1 if records else 0
    return PartitionRead(TARGET, asked_from, 0, high_watermark, start, list(records), end, told_before)


def sound(kind: Kind = PLAIN) -> PartitionHistory:
    """Ten records were sent; 0 … 2 were read, 0 … 4 acknowledged."""
    history = History()
    history.add_topic("topic", TARGET.topic_id, kind, 1)
    records = [record(offset, f"p:{offset}") for offset in range(10)]
    history.sent(TARGET, records)
    history.acknowledged(TARGET, records[:5], 0)
    (partition,) = history.partitions
    observe(partition, read(*records[:3]))
    return partition


REFUSED: dict[str, PartitionRead] = {
    "offsets do not ascend": read(record(3, "p:3"), record(3, "p:4")),
    "a gap": read(record(3, "p:3"), record(5, "p:5")),
    "beyond the high watermark": read(record(3, "p:3"), high_watermark=3),
    "a start past the high watermark": read(start=101),
    "a high watermark that went back": read(high_watermark=40, told_before=41),
    "what nobody sent": read(record(3, "p:77")),
    "other bytes": read(record(1, "p:1", b"other")),
    "a second copy": read(record(7, "p:2")),
    "another record than acknowledged": read(record(3, "p:9")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_read_is_refused_for(what: str) -> None:
    with pytest.raises(InvariantBroken):
        observe(sound(), REFUSED[what])


def test_a_log_without_an_acknowledged_record_is_refused() -> None:
    partition = sound()
    examine(partition, [read(*[record(offset, f"p:{offset}") for offset in range(5)])])
    with pytest.raises(InvariantBroken, match="p:4, acknowledged at 4"):
        examine(partition, [read(*[record(offset, f"p:{offset}") for offset in range(4)])])


def test_a_producers_records_out_of_order_are_refused() -> None:
    records = [record(offset, f"p:{offset}") for offset in range(5)]
    with pytest.raises(InvariantBroken, match="follows"):
        examine(sound(), [read(*records, record(5, "p:8"), record(6, "p:7"))])


def test_compaction_may_take_all_but_the_last_of_a_key() -> None:
    partition = sound(COMPACTED)
    observe(partition, read(record(3, "p:3"), record(4, "p:4"), record(5, "p:5")))
    examine(partition, [read(record(5, "p:5"))])
    with pytest.raises(InvariantBroken, match="the last record of b'k', at 5, is gone"):
        examine(partition, [read(record(4, "p:4"))])


@pytest.mark.parametrize(("kind", "refused"), [(PLAIN, False), (SYNCED, True)])
def test_a_power_cut_may_take_a_tail_only_where_nothing_is_synced(kind: Kind, refused: bool) -> None:
    partition = sound(kind)
    partition.may_have_holes = partition.unsettled = True
    after = [read(record(0, "p:0"), high_watermark=1)]
    if refused:
        with pytest.raises(InvariantBroken, match="power cut took"):
            what_survived_is_what_was_written(partition, after)
    else:
        what_survived_is_what_was_written(partition, after)


def test_a_forgotten_producer_is_refused() -> None:
    history = History()
    history.add_topic("topic", TARGET.topic_id, PLAIN, 1)
    history.lost_track(TARGET, (7, 0))
    with pytest.raises(InvariantBroken):
        idempotence_is_never_lost(history)


def found_out(seeds: int) -> bool:
    """Whether a life from one of so many seeds breaks an invariant."""
    for seed in range(seeds):
        with Simulation(seed, settings_for(seed)) as simulation:
            try:
                simulation.run(Workload(simulation, 12).run())
            except Exception:
                return True
    return False


def test_a_disk_that_lies_about_syncs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(self: MemoryDisk, process: Process | None, path: str, node: FileNode) -> None:
        self.operate(process, "sync", path)

    monkeypatch.setattr(MemoryDisk, "sync", pretend)
    assert found_out(8)


def test_a_disk_that_reads_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine: Callable[[FileNode, bytes], None] = FileNode.append

    def flip(self: FileNode, data: bytes) -> None:
        changed = bytearray(data)
        if len(changed) > 100:
            changed[-1] ^= 1
        genuine(self, bytes(changed))

    monkeypatch.setattr(FileNode, "append", flip)
    assert found_out(2)
