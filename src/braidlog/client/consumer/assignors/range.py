"""Range: each topic's partitions in order, one piece per reader, so that equal numbers of different topics meet.

Where members and replicas say their racks (KIP-881), partitions first go to readers in one of their racks, as far as
the size of everybody's piece allows; topics with the same readers and as many partitions stay cut alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braidlog.client.consumer.assignors.interface import (
    Assignment,
    Assignor,
    Subscriber,
    TopicMetadata,
    readers_by_topic,
)
from braidlog.core.types import TopicPartition


class RangeAssignor(Assignor):
    name = "range"

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        cuts = [_Cut(topic, readers, topics) for topic, readers in readers_by_topic(members, topics).items()]
        if any(cut.racks_matter for cut in cuts):
            for alike in _cut_alike(cuts):
                if len(alike) > 1:
                    _match_racks_together(alike)
                elif alike[0].racks_matter:
                    alike[0].hand_out(alike[0].near)
        for cut in cuts:
            cut.hand_out(_anywhere)
        assignments = {member.member_id: Assignment() for member in members}
        for cut in cuts:
            for member_id, numbers in cut.given.items():
                assignments[member_id].partitions += [TopicPartition(cut.topic, number) for number in sorted(numbers)]
        return assignments


def _anywhere(reader: Subscriber, number: int) -> bool:
    return True


class _Cut:
    """One topic on its way to its readers: what is left of it, and how many more each of them may get."""

    def __init__(self, topic: str, readers: list[Subscriber], topics: TopicMetadata) -> None:
        count = topics.counts[topic]
        self.topic = topic
        self.count = count
        self.readers = readers
        self.left = list(range(count))
        self.given: dict[str, list[int]] = {reader.member_id: [] for reader in readers}
        # Everybody gets `least`, and as many readers as `extras` says one more.
        self.least, self.extras = divmod(count, len(readers))
        self.racks = topics.racks.get(topic, ())
        self.racks_matter = self._racks_matter()

    def _racks_matter(self) -> bool:
        """Some partition is in the rack of some reader, but not every partition in every rack."""
        here = {reader.rack for reader in self.readers if reader.rack is not None}
        there = frozenset().union(*self.racks)
        return not here.isdisjoint(there) and any(racks != there for racks in self.racks)

    def near(self, reader: Subscriber, number: int) -> bool:
        return reader.rack is None or (number < len(self.racks) and reader.rack in self.racks[number])

    def room(self, reader: Subscriber) -> int:
        return max(0, self.least + (self.extras > 0) - len(self.given[reader.member_id]))

    def give(self, reader: Subscriber, numbers: list[int]) -> None:
        mine = self.given[reader.member_id]
        if len(mine) <= self.least < len(mine) + len(numbers):
            self.extras -= 1
        mine += numbers
        taken = set(numbers)
        self.left = [number for number in self.left if number not in taken]

    def hand_out(self, may: Callable[[Subscriber, int], bool]) -> None:
        if may is _anywhere and len(self.left) == self.count:
            self._cut_plainly()
            return
        for reader in self.readers:
            if not self.left:
                return
            wanted = [number for number in self.left if may(reader, number)][: self.room(reader)]
            if wanted:
                self.give(reader, wanted)

    def _cut_plainly(self) -> None:
        start = 0
        for place, reader in enumerate(self.readers):
            end = start + self.least + (place < self.extras)
            self.given[reader.member_id] = self.left[start:end]
            start = end
        self.left = []


def _cut_alike(cuts: list[_Cut]) -> list[list[_Cut]]:
    """Topics with the same readers and as many partitions, together."""
    found: dict[tuple[int, tuple[str, ...]], list[_Cut]] = {}
    for cut in cuts:
        found.setdefault((cut.count, tuple(cut.given)), []).append(cut)
    return list(found.values())


def _match_racks_together(cuts: list[_Cut]) -> None:
    """Partition n of all of these topics goes to the first reader that is near each of them."""
    waiting = list(cuts[0].readers)
    for number in range(cuts[0].count):
        for reader in waiting:
            if all(cut.room(reader) > 0 and cut.near(reader, number) for cut in cuts):
                for cut in cuts:
                    cut.give(reader, [number])
                if not any(cut.room(reader) for cut in cuts):
                    waiting.remove(reader)
                break
        if not waiting:
            return
