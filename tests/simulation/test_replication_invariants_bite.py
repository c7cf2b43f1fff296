"""An invariant that cannot fail proves nothing: for each of the replicas', a defect in the real code that it finds."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.broker.replica_manager import ReplicaManager
from braidlog.controller import brokers, partitions, reassignments
from braidlog.core.compilation import is_compiled
from braidlog.core.slices import ByteSlice
from braidlog.replication.follower import AppendedFetch, PartitionFetchState
from braidlog.replication.partition import Partition
from braidlog.replication.progress import ReplicaProgress
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.wire.records.batch import first_whole_batch
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_records
from support.simulation.cluster_invariants import NOTHING_LOST
from support.simulation.cluster_workload import ClusterWorkload, Faults
from support.simulation.invariants import InvariantBroken
from support.simulation.replicated_workload import SETTINGS, ReplicatedWorkload
from support.simulation.replication_invariants import (
    ISR_HAS_ALL,
    LEADER_IN_SYNC,
    LEADERS_HAVE_ALL,
    NEVER_BACK,
    NO_CUT_BELOW,
    READABLE_STAYS,
    SAME_BYTES,
)
from support.simulation.store_history import ISR_ASSIGNED

Patch = pytest.MonkeyPatch
# Some are met by one life in ten.
MOST_SEEDS = 40
STEPS = 12
# Those that make others lead.
ELECTIONS: Faults = (
    (ClusterWorkload._kill, 3),
    (ClusterWorkload._restart, 1),
    (ClusterWorkload._isolate, 3),
    (ClusterWorkload._partition, 3),
    (ClusterWorkload._expire, 3),
    (ReplicatedWorkload._leave_alone, 3),
)


# What an election out of the ISR breaks, whichever is seen first.
OUT_OF_SYNC = (NO_CUT_BELOW, LEADERS_HAVE_ALL, READABLE_STAYS)
# Those that make one with an empty disk lead, if it may.
REPLACED_DISKS: Faults = ((ReplicatedWorkload._wipe_disk, 1),)


def breaches(*wanted: str, faults: Faults = ELECTIONS, unclean: bool = False) -> str:
    """What the first seed says that finds one of these broken."""
    others: list[str] = []
    for seed in range(MOST_SEEDS):
        with SimulatedCluster(seed, settings=SETTINGS) as cluster:
            try:
                cluster.run(ReplicatedWorkload(cluster, STEPS, faults, unclean=unclean).run())
            except InvariantBroken as problem:
                if str(problem).startswith(wanted):
                    return str(problem)
                others.append(str(problem))
    raise AssertionError(f"no seed found that this does not hold: {wanted}; found were {others}")


def copy_other_bytes(patch: Patch) -> None:
    """Records are encoded again by the follower, with other values."""
    genuine = PartitionFetchState.append

    def append(self: PartitionFetchState, records: ByteSlice | None, *rest: Any) -> AppendedFetch:
        first = None if records is None else first_whole_batch(records.buffer, records.start, records.end)
        if records is not None and first is not None and first.producer_id < 0 and not first.is_control:
            found = [
                Record(timestamp=each.timestamp, value=b"x")
                for each in read_records(records.buffer, records.start, first.end)
            ]
            other = build_batch(found, base_offset=first.base_offset, leader_epoch=first.leader_epoch)
            records = ByteSlice(other, 0, len(other))
        return genuine(self, records, *rest)

    patch.setattr(PartitionFetchState, "append", append)


def never_truncate(patch: Patch) -> None:
    """The follower says that its last epoch is the leader's, so that the leader finds no divergence."""
    genuine = PartitionFetchState.position

    def position(self: PartitionFetchState) -> tuple[int, int, int]:
        end, last_epoch, start = genuine(self)
        return end, last_epoch if last_epoch < 0 else self.leader_epoch, start

    patch.setattr(PartitionFetchState, "position", position)


def truncate_what_is_committed(patch: Patch) -> None:
    genuine = PartitionFetchState.skip_truncation

    def skip(self: PartitionFetchState) -> bool:
        self._truncate_to(max(self.log.high_watermark - 1, self.log.log_start_offset))
        return genuine(self)

    patch.setattr(PartitionFetchState, "skip_truncation", skip)


def forget_the_high_watermark(patch: Patch) -> None:
    """Every other time."""
    genuine = PartitionFetchState.append

    def append(self: PartitionFetchState, *rest: Any) -> AppendedFetch:
        done = genuine(self, *rest)
        if self.log.log_end_offset % 2:
            self.log._local_log.high_watermark = 0
        return done

    patch.setattr(PartitionFetchState, "append", append)


def elect_any_replica(patch: Patch) -> None:
    """One that is not in sync, where there is one."""

    def elect(context: Any, before: Any, where: Any) -> Any:
        live = tuple(each for each in before.replicas if context.online(each, where))
        outside = [each for each in live if each not in before.isr]
        return ((outside or live)[0], live) if live else None

    patch.setattr(partitions, "clean_leader", elect)


def lose_all_at_start(patch: Patch) -> None:
    genuine = ReplicaManager._open

    def open_log(self: ReplicaManager, partition: Partition, is_new: bool) -> None:
        genuine(self, partition, is_new)
        if partition.log is not None:
            partition.log.truncate_fully_and_start_at(0)

    patch.setattr(ReplicaManager, "_open", open_log)


def lead_with_an_empty_log(patch: Patch) -> None:
    """A broker forgets what it lost with its disk."""
    patch.setattr(LogManager, "is_lost", lambda self, partition, topic_id: False)


def keep_who_left_in_sync(patch: Patch) -> None:
    """A replica that is moved away stays in the ISR."""
    genuine = reassignments._finished

    def finished(context: Any, where: Any, moving: Any, target: Any) -> Any:
        return genuine(context, where, moving, target)._replace(isr=moving.isr)

    patch.setattr(reassignments, "_finished", finished)


def leave_the_leader_out_of_sync(patch: Patch) -> None:
    """Whoever leaves the ISR, the leader leaves it, too."""
    genuine = brokers.with_leader

    def with_leader(context: Any, before: Any, leader: Any, isr: Any, *rest: Any) -> Any:
        return genuine(context, before, leader, tuple(each for each in isr if each != leader) or isr, *rest)

    patch.setattr(brokers, "with_leader", with_leader)


def commit_what_is_written(patch: Patch) -> None:
    def high_watermark(self: ReplicaProgress, vouched: int, *rest: Any) -> int:
        return vouched

    patch.setattr(ReplicaProgress, "high_watermark", high_watermark)


def acknowledge_what_is_written(patch: Patch) -> None:
    patch.setattr(Partition, "wait_for_commit", lambda self, offset, ack: None)


DEFECTS = {
    defect.__name__: (defect, found)
    for defect, found in (
        (copy_other_bytes, (SAME_BYTES,)),
        (never_truncate, (READABLE_STAYS,)),
        (truncate_what_is_committed, (NO_CUT_BELOW,)),
        (forget_the_high_watermark, (NEVER_BACK,)),
        (elect_any_replica, OUT_OF_SYNC),
        (lose_all_at_start, (LEADERS_HAVE_ALL,)),
        (commit_what_is_written, (ISR_HAS_ALL,)),
        (keep_who_left_in_sync, (ISR_ASSIGNED,)),
        (leave_the_leader_out_of_sync, (LEADER_IN_SYNC,)),
        (acknowledge_what_is_written, (NOTHING_LOST,)),
    )
}
IN_COMPILED_CLASSES = frozenset(
    defect.__name__
    for defect in (
        copy_other_bytes,
        never_truncate,
        truncate_what_is_committed,
        forget_the_high_watermark,
        commit_what_is_written,
        acknowledge_what_is_written,
    )
)


def test_a_broker_that_leads_with_an_empty_log_is_found(monkeypatch: Patch) -> None:
    lead_with_an_empty_log(monkeypatch)
    assert breaches(NO_CUT_BELOW, LEADERS_HAVE_ALL, NOTHING_LOST, faults=REPLACED_DISKS)


def test_an_election_of_a_replica_out_of_sync_is_found_where_one_topic_allows_them(monkeypatch: Patch) -> None:
    """What the unclean elections of one partition may lose the others may not."""
    elect_any_replica(monkeypatch)
    assert breaches(*OUT_OF_SYNC, unclean=True)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: Patch) -> None:
    if defect in IN_COMPILED_CLASSES and is_compiled():
        pytest.skip("methods of a compiled class cannot be replaced; `make test` runs this file uncompiled")
    inject, found = DEFECTS[defect]
    inject(monkeypatch)
    assert breaches(*found)
