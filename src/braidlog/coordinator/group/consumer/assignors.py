"""The assignors of the consumer protocol: which member is to have which partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from braidlog.coordinator.group.consumer.member import Assignment

# Rounds over all pools; what one pool gives up may unbalance another, each time less.
MAX_ROUNDS: Final = 16

# Topic id -> how many partitions.
Partitions = Mapping[bytes, int]


class MemberSubscription(NamedTuple):
    """A member as assignors see it."""

    member_id: str
    instance_id: str | None
    # The topics it reads that exist, each once.
    topics: tuple[bytes, ...]
    # What was meant for it until now.
    before: Assignment


def preferred_assignor(votes: Mapping[str, int], known: tuple[str, ...]) -> str:
    """The one that most members ask for; the first of the settings where they do not care or agree."""
    best = known[0]
    for name in known:
        if votes.get(name, 0) > votes.get(best, 0):
            best = name
    return best


def assign_range(readers: Sequence[MemberSubscription], partitions: Partitions) -> dict[str, Assignment]:
    """Range: each topic's partitions in order, in one piece per member.

    Members are put in order by instance id (static ones, first), then by member id. Topics with as many partitions and
    the same readers are cut alike, so equal partition numbers meet at one member.
    """
    ordered = sorted(readers, key=_order)
    readers_of: dict[bytes, list[str]] = {}
    for reader in ordered:
        for topic_id in reader.topics:
            readers_of.setdefault(topic_id, []).append(reader.member_id)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {reader.member_id: {} for reader in readers}
    for topic_id, members in readers_of.items():
        least, more = divmod(partitions.get(topic_id, 0), len(members))
        start = 0
        for place, member_id in enumerate(members):
            size = least + (place < more)
            if size == 0:
                break
            assigned[member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return dict(assigned)


def _order(reader: MemberSubscription) -> tuple[int, str]:
    return (0, reader.instance_id) if reader.instance_id is not None else (1, reader.member_id)


class _Pool:
    """Topics with the same readers."""

    __slots__ = ("free", "held", "readers", "topics")

    def __init__(self, readers: tuple[int, ...]) -> None:
        self.readers = readers
        self.topics: list[bytes] = []
        self.free: list[tuple[bytes, int]] = []
        # By reader; the last one is the first to go.
        self.held: dict[int, list[tuple[bytes, int]]] = {}


def assign_uniform(readers: Sequence[MemberSubscription], partitions: Partitions) -> dict[str, Assignment]:
    """Uniform: every member about the same number of partitions, moving as few as that takes.

    Topics with the same readers form a pool, whose partitions are all alike to the assignor. Where all members read
    the same there is one pool, and in the end no member has more than one partition more than another. With several
    pools that holds within each pool for what a single move can improve.

        1. every member keeps what was meant for it and still can be
        2. a partition without a reader goes to the reader with the least, pools with few readers first
        3. while a reader in a pool has two more than another one there, one of its partitions moves

    Takes O((readers + partitions + moves) · log readers) per pool.
    """
    ordered = sorted(readers, key=lambda reader: reader.member_id)
    pools = _pools(ordered, partitions)
    loads = [0] * len(ordered)
    for pool in pools:
        _keep(pool, ordered, partitions, loads)
    for pool in pools:
        _hand_out(pool, loads)
    for _ in range(MAX_ROUNDS):
        moved = 0
        for pool in pools:
            moved += _even_out(pool, loads)
        if not moved or len(pools) == 1:
            break
    return _result(ordered, pools)


def _pools(ordered: Sequence[MemberSubscription], partitions: Partitions) -> list[_Pool]:
    if len({reader.topics for reader in ordered}) == 1:
        pool = _Pool(tuple(range(len(ordered))))
        pool.topics = sorted(topic for topic in ordered[0].topics if partitions.get(topic))
        return [pool] if pool.topics else []
    readers_of: dict[bytes, list[int]] = {}
    for index, reader in enumerate(ordered):
        for topic_id in reader.topics:
            if partitions.get(topic_id):
                readers_of.setdefault(topic_id, []).append(index)
    pools: dict[tuple[int, ...], _Pool] = {}
    for topic_id in sorted(readers_of):
        who = tuple(readers_of[topic_id])
        if who not in pools:
            pools[who] = _Pool(who)
        pools[who].topics.append(topic_id)
    return sorted(pools.values(), key=lambda pool: (len(pool.readers), pool.topics[0]))


def _keep(pool: _Pool, ordered: Sequence[MemberSubscription], partitions: Partitions, loads: list[int]) -> None:
    """What readers had stays with them, all else is free."""
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in pool.topics}
    for index in pool.readers:
        before = ordered[index].before
        if not before:
            continue
        mine: list[tuple[bytes, int]] = []
        for topic_id in before:
            others = taken.get(topic_id)
            if others is None:
                continue
            count = partitions[topic_id]
            for number in sorted(before[topic_id] - others):
                if number < count:
                    mine.append((topic_id, number))
            others |= before[topic_id]
        if mine:
            pool.held[index] = mine
            loads[index] += len(mine)
    for topic_id in pool.topics:
        others = taken[topic_id]
        pool.free += [(topic_id, number) for number in range(partitions[topic_id]) if number not in others]


def _hand_out(pool: _Pool, loads: list[int]) -> None:
    if not pool.free:
        return
    if len(pool.free) == 1:
        index = min(pool.readers, key=loads.__getitem__)
        pool.held.setdefault(index, []).append(pool.free[0])
        loads[index] += 1
        return
    least = [(loads[index], index) for index in pool.readers]
    heapify(least)
    for partition in pool.free:
        load, index = heappop(least)
        pool.held.setdefault(index, []).append(partition)
        loads[index] = load + 1
        heappush(least, (load + 1, index))


def _even_out(pool: _Pool, loads: list[int]) -> int:
    """Partitions moved. Entries of the heaps whose load is no longer right are passed over."""
    lowest = min([loads[index] for index in pool.readers])
    if max([loads[index] for index, held in pool.held.items() if held], default=0) - lowest < 2:
        return 0
    least = [(loads[index], index) for index in pool.readers]
    most = [(-loads[index], index) for index, held in pool.held.items() if held]
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
        heappop(most)
        heappop(least)
        pool.held.setdefault(taker, []).append(pool.held[giver].pop())
        moved += 1
        for index in (giver, taker):
            loads[index] += 1 if index == taker else -1
            heappush(least, (loads[index], index))
            heappush(most, (-loads[index], index))
    return moved


def _result(ordered: Sequence[MemberSubscription], pools: list[_Pool]) -> dict[str, Assignment]:
    gathered: list[dict[bytes, list[int]]] = [{} for _ in ordered]
    for pool in pools:
        for index, held in pool.held.items():
            mine = gathered[index]
            for topic_id, number in held:
                numbers = mine.get(topic_id)
                if numbers is None:
                    mine[topic_id] = [number]
                else:
                    numbers.append(number)
    return {
        reader.member_id: {topic_id: frozenset(numbers) for topic_id, numbers in gathered[index].items()}
        for index, reader in enumerate(ordered)
    }


ASSIGNORS: Final[Mapping[str, Callable[[Sequence[MemberSubscription], Partitions], dict[str, Assignment]]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
