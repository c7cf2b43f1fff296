"""Assigns evenly while moving as little as that takes; both sticky assignors use it.

Topics with the same readers form a pool, whose partitions are all alike here. Where all members read the same topics
there is one pool: in the end no member has more than one partition more than another, and no assignment as even would
move fewer. With several pools no single move between two readers of a pool would make them more even.

    1. every member keeps what it had, as far as it still reads it and no other has a newer claim
    2. a partition without a reader goes to the reader with the least, pools with few readers first
    3. while a reader in a pool has two more than another one there, one of its partitions moves

Each move of step 3 brings loads closer, so it ends. Takes O((readers + partitions + moves) · log readers) per pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from braidlog.client.consumer.assignors.interface import Subscriber, TopicMetadata, readers_by_topic
from braidlog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member had, and in which generation it was given that."""

    partitions: Sequence[TopicPartition]
    generation: int


@dataclass(slots=True)
class _Pool:
    """Topics with the same readers, who are places in the order of members."""

    readers: tuple[int, ...]
    topics: list[str] = field(default_factory=list)
    free: list[TopicPartition] = field(default_factory=list)
    # By reader; the last one is the first to go.
    held: dict[int, list[TopicPartition]] = field(default_factory=dict)


def balanced(
    members: Sequence[Subscriber], topics: TopicMetadata, claims: Mapping[str, Claim]
) -> dict[str, list[TopicPartition]]:
    """What each member reads from now on, by member id, given what they had."""
    ordered = sorted(members, key=lambda each: each.rank)
    pools = _pools(ordered, topics)
    owners = _owners(ordered, claims)
    loads = [0] * len(ordered)
    for pool in pools:
        _keep(pool, topics, owners, loads)
    for pool in pools:
        _hand_out(pool, loads)
    while sum([_even_out(pool, loads) for pool in pools]) and len(pools) > 1:
        pass
    assignments: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for pool in pools:
        for place, held in pool.held.items():
            assignments[ordered[place].member_id] += held
    return assignments


def newest_owners(members: Sequence[Subscriber], claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    """The member whose each partition was by the newest claim; none where two claims are equal."""
    ordered = sorted(members, key=lambda each: each.rank)
    return {partition: ordered[place].member_id for partition, place in _owners(ordered, claims).items()}


def _pools(ordered: Sequence[Subscriber], topics: TopicMetadata) -> list[_Pool]:
    places = {member.member_id: place for place, member in enumerate(ordered)}
    pools: dict[tuple[int, ...], _Pool] = {}
    for topic, readers in readers_by_topic(ordered, topics).items():
        who = tuple([places[reader.member_id] for reader in readers])
        pools.setdefault(who, _Pool(who)).topics.append(topic)
    return sorted(pools.values(), key=lambda pool: (len(pool.readers), pool.topics[0]))


def _owners(ordered: Sequence[Subscriber], claims: Mapping[str, Claim]) -> dict[TopicPartition, int]:
    """Whose each partition was by the newest claim; of two equal claims neither is believed (KIP-792)."""
    newest: dict[TopicPartition, tuple[int, int]] = {}
    for place, member in enumerate(ordered):
        claim = claims.get(member.member_id)
        if claim is None:
            continue
        for partition in claim.partitions:
            generation, other = newest.get(partition, (claim.generation - 1, -1))
            if claim.generation > generation:
                newest[partition] = (claim.generation, place)
            elif claim.generation == generation and other != place:
                newest[partition] = (generation, -1)
    return {partition: place for partition, (_, place) in newest.items() if place >= 0}


def _keep(pool: _Pool, topics: TopicMetadata, owners: Mapping[TopicPartition, int], loads: list[int]) -> None:
    readers = set(pool.readers)
    for partition in topics.partitions(pool.topics):
        place = owners.get(partition, -1)
        if place in readers:
            pool.held.setdefault(place, []).append(partition)
            loads[place] += 1
        else:
            pool.free.append(partition)


def _hand_out(pool: _Pool, loads: list[int]) -> None:
    if not pool.free:
        return
    least = [(loads[place], place) for place in pool.readers]
    heapify(least)
    for partition in pool.free:
        load, place = heappop(least)
        pool.held.setdefault(place, []).append(partition)
        loads[place] = load + 1
        heappush(least, (load + 1, place))


def _even_out(pool: _Pool, loads: list[int]) -> int:
    """Partitions moved. Entries of the heaps whose load is no longer right are passed over."""
    least = [(loads[place], place) for place in pool.readers]
    most = [(-loads[place], place) for place, held in pool.held.items() if held]
    heapify(least)
    heapify(most)
    moved = 0
    while most:
        load, giver = -most[0][0], most[0][1]
        if load != loads[giver] or not pool.held[giver]:
            heappop(most)
            continue
        low, taker = least[0]
        if low != loads[taker]:
            heappop(least)
            continue
        if load - low < 2:
            break
        pool.held.setdefault(taker, []).append(pool.held[giver].pop())
        moved += 1
        loads[giver] -= 1
        loads[taker] += 1
        for place in (giver, taker):
            heappush(least, (loads[place], place))
            heappush(most, (-loads[place], place))
    return moved
