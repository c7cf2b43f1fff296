"""What must hold of replicas, looked at in the logs of all brokers that run.

same bytes          a batch of one leader epoch at one offset is the same in every log, and stays so
readable stays      what lies below the high watermark of any replica is the same in all, and stays so
nothing is lost     what a leader showed to consumers every later leader has, unless one was elected uncleanly
committed is copied the high watermark of a leader is in the log of every replica that the store says is in sync
no cut below        no follower truncates below its own high watermark, unless the election was unclean
leader in sync      the store names a leader that is in sync, or none, and always somebody who is in sync

A partition that had an unclean election keeps the first, the fourth and the last; so does one that may begin anew from
an empty disk, because its topic allows unclean elections.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import Final, NamedTuple

from braidlog.core.ids import ZERO_ID, id_text
from braidlog.core.types import NO_BROKER, TopicPartition
from braidlog.replication.partition import Partition
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.testing.simulated.cluster import SimulatedCluster
from support.simulation.invariants import InvariantBroken
from support.simulation.store_history import StoreHistory

SAME_BYTES: Final = "one leader epoch has one content"
READABLE_STAYS: Final = "what was once readable never changes"
LEADERS_HAVE_ALL: Final = "a leader has what was exposed"
ISR_HAS_ALL: Final = "what is committed is on every replica in sync"
NO_CUT_BELOW: Final = "no truncation below the high watermark"
NEVER_BACK: Final = "the high watermark never goes back"
LEADER_IN_SYNC: Final = "a leader is in sync"

# Topic id and partition.
Key = tuple[bytes, int]


class _Seen(NamedTuple):
    """How far a log was looked at."""

    log: UnifiedLog
    truncations: int
    end: int
    high_watermark: int


class _Warnings(logging.Handler):
    def __init__(self, store: StoreHistory) -> None:
        super().__init__(logging.WARNING)
        self._store = store
        # Each with the id that the topic had then: it may be another one when that is looked at.
        self.cuts: list[tuple[TopicPartition, bytes, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if "below its high watermark" in line and isinstance(record.args, tuple):
            where = record.args[0]
            assert isinstance(where, TopicPartition)
            self.cuts.append((where, self._store.topics.get(where.topic, ZERO_ID), line))


class ReplicationHistory:
    def __init__(self, cluster: SimulatedCluster, store: StoreHistory) -> None:
        self._cluster = cluster
        self._store = store
        self._seen: dict[tuple[str, Key], _Seen] = {}
        # By partition, leader epoch and base offset.
        self._batches: dict[tuple[Key, int, int], tuple[int, int]] = {}
        # By partition and base offset, what was below the high watermark of some replica.
        self._readable: dict[tuple[Key, int], tuple[int, int, int]] = {}
        # Up to where consumers could read.
        self._exposed: dict[Key, int] = {}
        self._warnings = _Warnings(store)
        self.truncations = 0
        # Names of topics that may be led by an empty log.
        self.may_begin_anew: Set[str] = frozenset()
        logger = logging.getLogger("braidlog.fetcher")
        logger.addHandler(self._warnings)
        cluster.simulation.on_exit.append(lambda: logger.removeHandler(self._warnings))

    def check(self) -> None:
        for where, topic_id, line in self._warnings.cuts:
            if not self.is_unclean(where.topic, topic_id, where.partition):
                raise InvariantBroken(f"{NO_CUT_BELOW}: {line}")
        self._warnings.cuts.clear()
        for broker in self._cluster.brokers:
            if broker.is_up:
                for partition in broker.parts.registry.partitions():
                    if partition.log is not None:
                        self._look(broker.name, partition, partition.log)
        self._check_leaders()
        for (topic_id, index), state in self._store.states.items():
            in_sync = state.leader in (NO_BROKER, *state.isr) and len(state.isr) > 0
            if not in_sync and topic_id not in self._store.deleted:
                raise InvariantBroken(f"{LEADER_IN_SYNC}: partition {index} of topic {id_text(topic_id)} has {state}")

    def is_unclean(self, topic: str, topic_id: bytes, index: int) -> bool:
        """Whether what was committed may be lost."""
        return (topic_id, index) in self._store.unclean or topic in self.may_begin_anew

    def out_of_sync(self) -> list[str]:
        """Partitions that the store says have replicas out of sync, or on their way to others."""
        found: list[str] = []
        for name, topic_id in self._store.topics.items():
            record = self._store.assigned[topic_id]
            for index, replicas in enumerate(record.partitions):
                state = self._store.states.get((topic_id, index))
                moving = index in record.adding or index in record.removing
                if topic_id not in self._store.deleting and (
                    state is None or moving or set(state.isr) != set(replicas)
                ):
                    found.append(f"{name}-{index} of {replicas} ({state}{', moving' if moving else ''})")
        return found

    def _look(self, name: str, partition: Partition, log: UnifiedLog) -> None:
        key = (partition.topic_id, partition.index)
        where = f"{partition.topic}-{partition.index} of {name}"
        before = self._seen.get((name, key))
        unclean = self.is_unclean(partition.topic, *key)
        start = committed = 0
        seen = _Seen(log, log.truncation_count, log.log_end_offset, log.high_watermark)
        if seen == before:
            # What it holds was looked at.
            return
        if before is not None and before.log is log:
            if log.high_watermark < before.high_watermark and not unclean:
                raise InvariantBroken(f"{NEVER_BACK}: {where}: {before.high_watermark}, then {log.high_watermark}")
            if log.truncation_count == before.truncations:
                start, committed = before.end, before.high_watermark
            else:
                self.truncations += 1
        # Those that end before were looked at.
        first = min(start, committed)
        ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
        for segment in (each for each, end in zip(log.segments, ends, strict=True) if end > first):
            walk = segment.walk(0)
            while walk.advance():
                if walk.base_offset >= start:
                    self._compare(where, key, walk.leader_epoch, walk.base_offset, walk.last_offset, walk.header().crc)
                if walk.base_offset >= committed and walk.last_offset < log.high_watermark:
                    found = (walk.last_offset, walk.leader_epoch, walk.header().crc)
                    if unclean:
                        continue
                    if self._readable.setdefault((key, walk.base_offset), found) != found:
                        raise InvariantBroken(
                            f"{READABLE_STAYS}: {where} has at offset {walk.base_offset}, below its high watermark "
                            f"{log.high_watermark}, a batch of epoch {walk.leader_epoch} that was another one"
                        )
        self._seen[name, key] = seen

    def _compare(self, where: str, key: Key, epoch: int, offset: int, last: int, crc: int) -> None:
        known = self._batches.setdefault((key, epoch, offset), (last, crc))
        if known != (last, crc):
            raise InvariantBroken(
                f"{SAME_BYTES}: {where} has another batch of epoch {epoch} at offset {offset} to {last} than there was "
                f"(to {known[0]})"
            )

    def _check_leaders(self) -> None:
        brokers = {number: broker for number, broker in enumerate(self._cluster.brokers, 1) if broker.is_up}
        for number, broker in brokers.items():
            for partition in broker.parts.registry.partitions():
                key = (partition.topic_id, partition.index)
                log = partition.log
                state = self._store.states.get(key)
                if partition.leader != number or log is None or state is None:
                    continue
                where = f"{partition.topic}-{partition.index} of {broker.name} in epoch {partition.leader_epoch}"
                # One that was deposed and does not know may show no more than the next one has.
                unclean = self.is_unclean(partition.topic, *key)
                exposed = log.high_watermark if unclean else max(self._exposed.get(key, 0), log.high_watermark)
                self._exposed[key] = exposed
                if partition.leader_epoch != state.leader_epoch:
                    continue
                if log.log_end_offset < exposed:
                    raise InvariantBroken(f"{LEADERS_HAVE_ALL}: {where} ends at {log.log_end_offset}, not {exposed}")
                for member in state.isr:
                    other = brokers.get(member)
                    held = None if other is None else other.parts.registry.get(partition.topic, partition.index)
                    if held is None or held.log is None or held.topic_id != partition.topic_id:
                        continue
                    if held.log.log_end_offset < log.high_watermark:
                        raise InvariantBroken(
                            f"{ISR_HAS_ALL}: {where} has {log.high_watermark} committed, broker {member} ends at "
                            f"{held.log.log_end_offset}"
                        )
