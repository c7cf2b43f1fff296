"""What clients of a simulated broker did and saw: the ground on which invariants stand.

Every record carries its own name in a header ("producer:number"), so that it is known again wherever it turns up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from braidlog.wire.records.reading import Record

NAME_HEADER: Final = "name"


class PartitionTarget(NamedTuple):
    """A partition of one topic: another topic of the same name has other ones."""

    topic: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionRead(NamedTuple):
    """What one response said of one partition; `records` are those from `asked_from` on."""

    target: PartitionTarget
    asked_from: int
    error_code: int
    high_watermark: int
    log_start: int
    records: list[Record]
    # Past the last batch; compaction leaves batches whose records are all gone.
    next_offset: int
    # The high watermark that any client had seen when this was asked.
    told_before: int = 0


class Kind(NamedTuple):
    """What a topic is for, and what may be expected of it."""

    name: str
    configs: Mapping[str, str]
    # Acknowledged means synced: a power cut takes nothing that was acknowledged or read.
    synced: bool = False
    # Compaction removes records that a later one of the same key replaces.
    compacted: bool = False
    # Retention removes old segments.
    retained: bool = False


class Sent(NamedTuple):
    key: bytes | None
    is_tombstone: bool


class Stored(NamedTuple):
    """A record as a reader saw it."""

    name: str
    key: bytes | None
    value: bytes | None
    timestamp: int

    @property
    def producer(self) -> str:
        return self.name.partition(":")[0]

    @property
    def number(self) -> int:
        return int(self.name.partition(":")[2])


def stored(record: Record) -> Stored:
    return Stored(name_of(record), record.key, record.value, record.timestamp)


def name_of(record: Record) -> str:
    for header, value in record.headers:
        if header == NAME_HEADER and value is not None:
            return value.decode()
    raise AssertionError(f"a record without a name: {record!r}")


@dataclass
class PartitionHistory:
    target: PartitionTarget
    kind: Kind
    # Name → record that may be in the log.
    sent: dict[str, Sent] = field(default_factory=dict)
    # Offset → name, as acknowledged; and those acknowledged without saying where.
    acknowledged: dict[int, str] = field(default_factory=dict)
    acknowledged_somewhere: dict[str, None] = field(default_factory=dict)
    # Offset → record, as read; name → offset.
    seen: dict[int, Stored] = field(default_factory=dict)
    offset_of: dict[str, int] = field(default_factory=dict)
    high_watermark: int = 0
    log_start: int = 0
    # A power cut has come since this partition was last read as a whole.
    unsettled: bool = False
    # It lost power, and of its unsynced segments any may have lost its tail: as in Kafka the log may have holes.
    may_have_holes: bool = False
    # Records that their producer sent a second time under another epoch, without knowing whether the first was written.
    may_repeat: dict[str, None] = field(default_factory=dict)
    # Producer ids and epochs whose sequences a power cut may have taken.
    excused_producers: dict[tuple[int, int], None] = field(default_factory=dict)

    def forget_from(self, end: int) -> None:
        """The log was cut at `end`: what lay there is gone and its offsets are free."""
        self._keep(lambda offset: offset < end)

    def keep(self, offsets: set[int]) -> None:
        """Nothing but these is left."""
        self._keep(lambda offset: offset in offsets)

    def _keep(self, stays: Callable[[int], bool]) -> None:
        self.acknowledged = {offset: name for offset, name in self.acknowledged.items() if stays(offset)}
        self.seen = {offset: record for offset, record in self.seen.items() if stays(offset)}
        self.offset_of = {record.name: offset for offset, record in self.seen.items()}


@dataclass
class TopicHistory:
    name: str
    topic_id: bytes
    kind: Kind
    partitions: list[PartitionHistory]
    # A request for so many partitions is under way, or its answer was lost.
    may_grow_to: int = 0

    @property
    def targets(self) -> list[PartitionTarget]:
        return [partition.target for partition in self.partitions]


class History:
    """What the frames of producers said; what was read is added by the checks."""

    def __init__(self) -> None:
        self.topics: dict[bytes, TopicHistory] = {}
        self.deleted: dict[bytes, str] = {}
        # Idempotent producers (id and epoch) that the broker lost track of.
        self.lost_track_of: list[tuple[PartitionTarget, tuple[int, int]]] = []
        # Of topics and partitions that a producer found before the one who asked for them was answered.
        self._early: dict[tuple[bytes, int], PartitionHistory] = {}
        self.acknowledged_count = 0
        # Every record that a broker ever acknowledged, by name.
        self.acknowledged_names: dict[str, None] = {}
        self.read_count = 0

    def add_topic(self, name: str, topic_id: bytes, kind: Kind, partitions: int) -> None:
        topic = self.topics[topic_id] = TopicHistory(name, topic_id, kind, [])
        for _ in range(partitions):
            self.add_partition(topic)

    def add_partition(self, topic: TopicHistory) -> None:
        target = PartitionTarget(topic.name, topic.topic_id, len(topic.partitions))
        partition = self._early.pop((topic.topic_id, target.partition), None) or PartitionHistory(target, topic.kind)
        partition.target, partition.kind = target, topic.kind
        topic.partitions.append(partition)

    def topic_deleted(self, topic_id: bytes) -> None:
        topic = self.topics.pop(topic_id, None)
        if topic is not None:
            self.deleted[topic_id] = topic.name

    def of(self, target: PartitionTarget) -> PartitionHistory | None:
        """None once its topic was deleted."""
        found = self.find(target.topic_id, target.partition)
        if found is not None or target.topic_id in self.deleted:
            return found
        return self._early.setdefault(
            (target.topic_id, target.partition), PartitionHistory(target, Kind("not known yet", {}))
        )

    def find(self, topic_id: bytes, partition: int) -> PartitionHistory | None:
        topic = self.topics.get(topic_id)
        return topic.partitions[partition] if topic is not None and partition < len(topic.partitions) else None

    @property
    def partitions(self) -> list[PartitionHistory]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def power_was_cut(self, producers: Sequence[tuple[int, int]]) -> None:
        for partition in self.partitions:
            partition.unsettled = True
            partition.may_have_holes = True
            if not partition.kind.synced:
                partition.excused_producers.update(dict.fromkeys(producers))

    # Producers

    def sent(self, target: PartitionTarget, records: Sequence[Record]) -> None:
        partition = self.of(target)
        if partition is not None:
            for record in records:
                partition.sent[name_of(record)] = Sent(record.key, record.value is None)

    def acknowledged(self, target: PartitionTarget, records: Sequence[Record], base_offset: int) -> None:
        self.acknowledged_names.update(dict.fromkeys(map(name_of, records)))
        partition = self.of(target)
        if partition is None:
            return
        self.acknowledged_count += len(records)
        for number, record in enumerate(records):
            if base_offset < 0:
                partition.acknowledged_somewhere[name_of(record)] = None
            else:
                partition.acknowledged[base_offset + number] = name_of(record)

    def sent_again(self, target: PartitionTarget, records: Sequence[Record]) -> None:
        """Under another producer epoch, while it is not known what became of the first."""
        partition = self.of(target)
        if partition is not None:
            partition.may_repeat.update(dict.fromkeys(map(name_of, records)))

    def lost_track(self, target: PartitionTarget, producer: tuple[int, int]) -> None:
        partition = self.of(target)
        if partition is not None and producer not in partition.excused_producers:
            self.lost_track_of.append((target, producer))
