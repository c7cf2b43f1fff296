"""Decides which replicas move so that given brokers hold the partitions evenly; pure.

    leave     replicas on brokers that are not to hold any go to the emptiest ones
    spread    no rack, and then no host, has more replicas of a partition than it must
    even      replicas move from the fullest to the emptiest broker until no two differ by more than one; what moves
              anyway is passed on, over other brokers if need be, before anything else is copied
    leaders   the same for preferred leaders; that only reorders replicas, and copies nothing

A replica moves only where one of these asks for it, and of those that could, one of the topic that is most uneven, and
then the smallest. Spread goes before even: racks of different sizes stay unevenly full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

Assignment = Mapping[TopicPartition, tuple[int, ...]]


class BrokerPlace(NamedTuple):
    """Where a broker stands; None where that is not known."""

    rack: str | None = None
    host: str | None = None


def plan_moves(
    current: Assignment,
    brokers: Mapping[int, BrokerPlace],
    sizes: Mapping[TopicPartition, int] | None = None,
    *,
    rack_aware: bool = True,
) -> dict[TopicPartition, tuple[int, ...]]:
    """The new replicas, preferred leader first, of the partitions that change if these brokers are to hold all of them.

    Raises UserError where they cannot.
    """
    _check(current, brokers, rack_aware)
    places = brokers if rack_aware else {each: BrokerPlace() for each in brokers}
    planner = _Planner(current, places, sizes or {})
    planner.replace_leaving()
    planner.spread()
    planner.even_out_replicas()
    planner.even_out_leaders()
    return {each: tuple(after) for each, after in planner.replicas.items() if _differs(after, current[each])}


def _differs(after: Sequence[int], before: Sequence[int]) -> bool:
    """Whether other brokers hold or lead it; the order of followers means nothing."""
    return set(after) != set(before) or list(after[:1]) != list(before[:1])


def _check(current: Assignment, brokers: Mapping[int, BrokerPlace], rack_aware: bool) -> None:
    if not brokers:
        raise UserError("name at least one broker that is to hold the partitions")
    for each, replicas in current.items():
        if len(replicas) > len(brokers):
            raise UserError(
                f"{each} has {len(replicas)} replicas, and there are {len(brokers)} brokers to hold them: name more "
                f"brokers with --brokers, or leave the topic out"
            )
    without = sorted(each for each, place in brokers.items() if place.rack is None)
    if rack_aware and without and len(without) < len(brokers):
        raise UserError(
            f"the brokers {', '.join(map(str, without))} have no broker.rack, and others have one: set it everywhere, "
            f"or add --disable-rack-aware"
        )


class _Planner:
    def __init__(
        self, current: Assignment, places: Mapping[int, BrokerPlace], sizes: Mapping[TopicPartition, int]
    ) -> None:
        self._original = current
        self._places = places
        self._sizes = sizes
        self.replicas = {each: list(replicas) for each, replicas in sorted(current.items())}
        self._held: dict[int, set[TopicPartition]] = {each: set() for each in places}
        # Of these, what was elsewhere before.
        self._moved: dict[int, set[TopicPartition]] = {each: set() for each in places}
        self._least: dict[int, tuple[int, int]] = {}
        # Replicas of each topic, by broker.
        self._of_topic: dict[tuple[int, str], int] = {}
        for each, replicas in self.replicas.items():
            for broker in replicas:
                if broker in places:
                    self._count(each, broker, 1)

    def _count(self, partition: TopicPartition, broker: int, change: int) -> None:
        held = [self._held[broker]]
        if broker not in self._original[partition]:
            held.append(self._moved[broker])
        for each in held:
            if change > 0:
                each.add(partition)
            else:
                each.discard(partition)
        key = broker, partition.topic
        self._of_topic[key] = self._of_topic.get(key, 0) + change

    def _load(self, broker: int) -> int:
        return len(self._held[broker])

    def _move(self, partition: TopicPartition, source: int, target: int) -> None:
        replicas = self.replicas[partition]
        replicas[replicas.index(source)] = target
        if source in self._held:
            self._count(partition, source, -1)
        self._count(partition, target, 1)

    def _crowding(self, brokers: Iterable[int]) -> tuple[int, int]:
        """How much the replicas of a partition share racks, and hosts: the lower, the better spread."""
        racks: dict[str, int] = {}
        hosts: dict[str, int] = {}
        for broker in brokers:
            # One that leaves stands nowhere.
            place = self._places.get(broker)
            if place is not None and place.rack is not None:
                racks[place.rack] = racks.get(place.rack, 0) + 1
            if place is not None and place.host is not None:
                hosts[place.host] = hosts.get(place.host, 0) + 1
        return sum(each * each for each in racks.values()), sum(each * each for each in hosts.values())

    def _least_crowding(self, replicas: int) -> tuple[int, int]:
        """Of so many replicas, if racks, and hosts, take turns as long as they have brokers."""
        found = self._least.get(replicas)
        if found is None:
            racks = [each.rack for each in self._places.values() if each.rack is not None]
            hosts = [each.host for each in self._places.values() if each.host is not None]
            found = self._least[replicas] = _taking_turns(replicas, racks), _taking_turns(replicas, hosts)
        return found

    def _crowding_after(self, partition: TopicPartition, source: int, target: int) -> tuple[int, int]:
        return self._crowding(target if each == source else each for each in self.replicas[partition])

    def replace_leaving(self) -> None:
        for partition, replicas in self.replicas.items():
            for leaving in [each for each in replicas if each not in self._places]:
                target = min(
                    (each for each in self._places if each not in replicas),
                    key=lambda each: (
                        self._crowding_after(partition, leaving, each),
                        self._load(each),
                        self._of_topic.get((each, partition.topic), 0),
                        each,
                    ),
                )
                self._move(partition, leaving, target)

    def spread(self) -> None:
        """One replica at a time, as long as that makes it better."""
        for partition, replicas in self.replicas.items():
            best = self._crowding(replicas)
            least = self._least_crowding(len(replicas))
            while best[0] > least[0] or best[1] > least[1]:
                others = [each for each in self._places if each not in replicas]
                moves = [
                    (self._crowding_after(partition, source, target), self._load(target) - self._load(source), target)
                    for source in replicas
                    for target in others
                ]
                found = min(moves, default=None)
                if found is None or found[0] >= best:
                    break
                best, gained, target = found
                source = next(
                    each
                    for each in replicas
                    if self._crowding_after(partition, each, target) == best
                    and self._load(target) - self._load(each) == gained
                )
                self._move(partition, source, target)

    def even_out_replicas(self) -> None:
        def candidates(source: int, target: int) -> list[TopicPartition]:
            """The best last. One that is to move anyway costs nothing more."""
            found = [
                each
                for each in self._held[source]
                if target not in self.replicas[each]
                and self._crowding_after(each, source, target) <= self._crowding(self.replicas[each])
            ]
            return self._ranked(found, source, target, lambda each: source not in self._original[each])

        def is_one(each: TopicPartition, source: int, target: int) -> bool:
            return (
                each in self._held[source]
                and target not in self.replicas[each]
                and self._crowding_after(each, source, target) <= self._crowding(self.replicas[each])
            )

        _EveningOut(list(self._places), self._load, candidates, is_one, self._move, self._moved.__getitem__).run()

    def even_out_leaders(self) -> None:
        led: dict[int, set[TopicPartition]] = {each: set() for each in self._places}
        for partition, replicas in self.replicas.items():
            if replicas:
                led[replicas[0]].add(partition)

        def candidates(source: int, target: int) -> list[TopicPartition]:
            found = [each for each in led[source] if target in self.replicas[each]]
            return self._ranked(found, source, target, lambda each: target in self._original[each])

        def is_one(each: TopicPartition, source: int, target: int) -> bool:
            return each in led[source] and target in self.replicas[each]

        def lead(partition: TopicPartition, source: int, target: int) -> None:
            replicas = self.replicas[partition]
            replicas.remove(target)
            replicas.insert(0, target)
            led[source].remove(partition)
            led[target].add(partition)

        # Leading costs nothing, so that it does not matter which of them change.
        _EveningOut(list(self._places), lambda each: len(led[each]), candidates, is_one, lead, lambda each: set()).run()

    def _ranked(
        self, found: Sequence[TopicPartition], source: int, target: int, is_cheap: Callable[[TopicPartition], bool]
    ) -> list[TopicPartition]:
        """In the order in which they should move, last first: the topics take turns, the most uneven one first."""
        seen: dict[str, int] = {}
        keys: dict[TopicPartition, tuple[bool, int, int, TopicPartition]] = {}
        for each in sorted(found, key=lambda each: (not is_cheap(each), self._sizes.get(each, 0), each)):
            topic = each.topic
            moved = seen[topic] = seen.get(topic, 0) + 1
            gap = self._of_topic.get((source, topic), 0) - self._of_topic.get((target, topic), 0)
            keys[each] = not is_cheap(each), 2 * moved - gap, self._sizes.get(each, 0), each
        return sorted(keys, key=lambda each: keys[each], reverse=True)


def _taking_turns(wanted: int, where: Sequence[str]) -> int:
    """The least crowding of so many replicas on brokers that stand there."""
    room = Counter(where)
    taken = dict.fromkeys(room, 0)
    for _ in range(min(wanted, len(where))):
        emptiest = min((each for each in room if taken[each] < room[each]), key=lambda each: taken[each])
        taken[emptiest] += 1
    return sum(each * each for each in taken.values())


class _EveningOut:
    """Moves one thing after the other from the fullest broker to the emptiest, until no two differ by two."""

    def __init__(
        self,
        brokers: list[int],
        load: Callable[[int], int],
        candidates: Callable[[int, int], list[TopicPartition]],
        is_candidate: Callable[[TopicPartition, int, int], bool],
        move: Callable[[TopicPartition, int, int], None],
        free: Callable[[int], set[TopicPartition]],
    ) -> None:
        """`free` names what a broker has that costs nothing to move on."""
        self._brokers = brokers
        self._load = load
        self._candidates = candidates
        self._is_candidate = is_candidate
        self._move = move
        self._free = free
        # What could move from one broker to another when that was last looked at.
        self._known: dict[tuple[int, int], list[TopicPartition]] = {}

    def run(self) -> None:
        while True:
            while self._step():
                pass
            # Moves elsewhere may have made others possible.
            self._known.clear()
            if not self._step() and not self._step_by_way_of_another():
                return

    def _step(self) -> bool:
        order = sorted(self._brokers, key=lambda each: (self._load(each), each))
        for source in reversed(order):
            for target in order:
                if self._load(source) - self._load(target) < 2:
                    break
                moved = self._find(source, target)
                if moved is not None:
                    if moved in self._free(source) or not self._step_for_nothing(order):
                        self._move(moved, source, target)
                    return True
        return False

    def _step_for_nothing(self, order: list[int]) -> bool:
        """What moves anyway is passed on, over as many brokers as it takes; `order` is that of their loads."""
        for source in reversed(order):
            if self._load(source) - self._load(order[0]) < 2:
                break
            if not self._free(source):
                continue
            # How each broker was reached: what goes there, and from where.
            reached: dict[int, list[tuple[TopicPartition, int, int]]] = {source: []}
            for here in (queue := [source]):
                taken = {each for each, _, _ in reached[here]}
                for each in sorted(self._free(here)):
                    for target in order:
                        if each not in taken and target not in reached and self._is_candidate(each, here, target):
                            reached[target] = [*reached[here], (each, here, target)]
                            queue.append(target)
            for target in order:
                if self._load(source) - self._load(target) < 2:
                    break
                if target in reached:
                    for each, here, there in reached[target]:
                        self._move(each, here, there)
                    return True
        return False

    def _step_by_way_of_another(self) -> bool:
        """Nothing can go straight: one goes to a third broker, and another from there."""
        order = sorted(self._brokers, key=lambda each: (self._load(each), each))
        for source in reversed(order):
            for target in order:
                if self._load(source) - self._load(target) < 2:
                    break
                for between in order:
                    if between in (source, target):
                        continue
                    second = self._find(between, target)
                    first = self._find(source, between)
                    if first is None or second is None or first == second:
                        continue
                    self._move(second, between, target)
                    if self._is_candidate(first, source, between):
                        self._move(first, source, between)
                        return True
                    self._move(second, target, between)
        return False

    def _find(self, source: int, target: int) -> TopicPartition | None:
        key = source, target
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._candidates(source, target)
        while known:
            if self._is_candidate(known[-1], source, target):
                return known[-1]
            known.pop()
        return None
