"""Which brokers hold the replicas of new partitions, and whether a hand-made assignment makes sense.

Leaders go round the brokers from a random start; the followers of a partition sit `shift` further on, and the shift
grows with every round, so that brokers do not always follow the same leader. With racks, the brokers are lined up
one rack after the other, and no rack or broker comes twice in a partition before every one of them came once.

Brokers may share a machine (`braidlog serve --workers`). Then no machine comes twice in a partition before every one of
them came once; where there are racks, a machine that has no replica comes before a rack that has none.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from braidlog.cluster.image import BrokerInfo
from braidlog.core.protocol_errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from braidlog.core.types import BrokerId


def racks_of(brokers: Mapping[BrokerId, BrokerInfo]) -> dict[int, str | None]:
    return {each: brokers[each].rack for each in sorted(brokers)}


def shared_hosts(brokers: Mapping[BrokerId, BrokerInfo]) -> dict[int, str] | None:
    """The machine of every broker, if some share one; who does not say has one of its own."""
    hosts: dict[int, str] = {each: brokers[each].placement_host or f"broker {each}" for each in sorted(brokers)}
    return hosts if 1 < len(set(hosts.values())) < len(hosts) else None


def assign(
    partitions: int,
    replication_factor: int,
    racks: Mapping[int, str | None],
    rng: random.Random,
    *,
    hosts: Mapping[int, str] | None = None,
    first_partition: int = 0,
    leader_of_first: int | None = None,
) -> list[tuple[int, ...]]:
    """Replicas, leader first, of `partitions` partitions numbered from `first_partition`.

    `racks` has every live broker, and so has `hosts` where some share a machine. To continue an existing topic's
    round, name the leader of its partition 0.
    """
    if replication_factor > len(racks):
        raise InvalidReplicationFactorError(
            f"a replication factor of {replication_factor} needs as many brokers, but {len(racks)} "
            f"{'is' if len(racks) == 1 else 'are'} registered: ask for at most {len(racks)}, or start more brokers"
        )
    known = {each: rack for each, rack in racks.items() if rack is not None}
    if hosts is not None and len(known) < len(racks):
        # Without racks, machines are what replicas are spread over.
        known, hosts = dict(hosts), None
    line = _rack_alternated(known) if known and len(known) == len(racks) else sorted(racks)
    if leader_of_first is None:
        start, shift = rng.randrange(len(line)), rng.randrange(len(line))
    else:
        start = next((place for place, each in enumerate(line) if each >= leader_of_first), 0)
        shift = rng.randrange(len(line)) if first_partition == 0 else start
    rack_aware = len(line) == len(known)
    stride = len(set(known.values())) if rack_aware else 1
    assignment = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(line) == 0:
            shift += 1
        leader = (partition + start) % len(line)
        order = _followers(leader, shift * stride, len(line))
        replicas = [line[leader]]
        if rack_aware and hosts is not None:
            _fill_by_host(replicas, [line[place] for place in order], replication_factor, known, hosts)
        elif rack_aware:
            _fill_by_rack(replicas, [line[place] for place in order], replication_factor, known)
        else:
            replicas += [line[place] for place in order[: replication_factor - 1]]
        assignment.append(tuple(replicas))
    return assignment


def _followers(leader: int, shift: int, count: int) -> list[int]:
    """Every other place in the line, beginning `shift` after the leader."""
    others = count - 1
    return [(leader + 1 + (shift + step) % others) % count for step in range(others)]


def _rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """Brokers lined up so that neighbours are in different racks: 0 (a), 3 (b), 1 (a), 4 (b), …"""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    rounds = max(len(column) for column in columns)
    return [column[turn] for turn in range(rounds) for column in columns if turn < len(column)]


def _fill_by_rack(replicas: list[int], candidates: list[int], wanted: int, racks: Mapping[int, str]) -> None:
    """Take one broker of each rack that has none yet; once all have, begin the next round over the racks."""
    covered = {racks[replicas[0]]}
    all_racks = set(racks.values())
    while len(replicas) < wanted:
        if len(covered) == len(all_racks):
            covered = set()
        chosen = next((each for each in candidates if each not in replicas and racks[each] not in covered), None)
        if chosen is None:  # the racks not covered in this round have no broker left
            covered = all_racks
            continue
        replicas.append(chosen)
        covered.add(racks[chosen])


def _fill_by_host(
    replicas: list[int], candidates: list[int], wanted: int, racks: Mapping[int, str], hosts: Mapping[int, str]
) -> None:
    """As `_fill_by_rack`, but for the machines: one with fewer replicas comes first, then a rack with fewer."""
    left = list(candidates)
    while len(replicas) < wanted:
        on_host = Counter(hosts[each] for each in replicas)
        in_rack = Counter(racks[each] for each in replicas)
        chosen = min(left, key=lambda each: (on_host[hosts[each]], in_rack[racks[each]]))
        left.remove(chosen)
        replicas.append(chosen)


def check_replicas(replicas: Sequence[int], alive: Mapping[BrokerId, BrokerInfo], where: str) -> None:
    """Raises InvalidReplicaAssignmentError unless these brokers can hold one partition."""
    if not replicas:
        raise InvalidReplicaAssignmentError(f"{where} has no replicas: name at least one broker")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignmentError(f"{where} names a broker twice: {list(replicas)}")
    unknown = [each for each in replicas if each not in alive]
    if unknown:
        raise InvalidReplicaAssignmentError(
            f"{where} names {unknown}, but only {sorted(alive)} {'is' if len(alive) == 1 else 'are'} registered"
        )


def check_assignments(assignments: Mapping[int, Sequence[int]], alive: Mapping[BrokerId, BrokerInfo]) -> None:
    """Raises InvalidReplicaAssignmentError unless these are the partitions 0 to n-1 of one topic."""
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignmentError(
            f"partitions are numbered from 0 without gaps, but these were assigned: {sorted(assignments)}"
        )
    for partition, replicas in assignments.items():
        check_replicas(replicas, alive, f"partition {partition}")
        if len(replicas) != len(assignments[0]):
            raise InvalidReplicaAssignmentError(
                f"every partition has as many replicas as the first, {len(assignments[0])}; "
                f"partition {partition} has {len(replicas)}"
            )
