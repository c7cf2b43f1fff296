"""The ways a producer finds a record's partition.

A record that names its partition goes there. Otherwise the producer's partitioner is asked; what it leaves undecided
(a record without a key, as a rule) goes where `BuiltInPartitioner` stands for the topic.

    partitioner.class      a record with a key                         without
    "default", none        murmur2 of the key, as the Java client      sticky
    "sticky"               sticky                                      sticky
    "round_robin"          the next one that has a leader              the same
    "consistent_random"    crc32 of the key, as librdkafka             sticky, also for an empty key
    an object or callable  what `partition(topic, key, value, partitions)` returns; None leaves it undecided

`partitioner.ignore.keys` makes the default sticky for every record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Protocol
from zlib import crc32

from braidlog.client.errors import SettingError
from braidlog.client.settings import Settings
from braidlog.core.errors import UserError

UNDECIDED: Final = -1

_DEFAULT: Final = "default"
_STICKY: Final = "sticky"
_ROUND_ROBIN: Final = "round_robin"
_CONSISTENT_RANDOM: Final = "consistent_random"
# Kafka's own classes, and librdkafka's names.
_NAMES: Final = {
    "": _DEFAULT,
    "default": _DEFAULT,
    "murmur2": _DEFAULT,
    "murmur2_random": _DEFAULT,
    "sticky": _STICKY,
    "round_robin": _ROUND_ROBIN,
    "round-robin": _ROUND_ROBIN,
    "consistent_random": _CONSISTENT_RANDOM,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": _DEFAULT,
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": _STICKY,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": _ROUND_ROBIN,
}


class LedPartition(Protocol):
    """A partition in the metadata: its number and its leader (-1: none)."""

    @property
    def index(self) -> int: ...
    @property
    def leader(self) -> int: ...


class PartitionedTopic(Protocol):
    """A topic in the metadata."""

    @property
    def partitions(self) -> Sequence[LedPartition]: ...


class Partitioner(Protocol):
    """Decides by the record alone."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: PartitionedTopic) -> int:
        """One of the topic's partitions, or UNDECIDED."""
        ...

    def close(self) -> None:
        """The producer is closed."""
        ...


class UniformStickyPartitioner:
    """Keys play no part in where a record goes."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: PartitionedTopic) -> int:
        return UNDECIDED

    def close(self) -> None:
        pass


class RoundRobinPartitioner:
    """Each record of a topic to the next partition, whatever its key (KIP-369)."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: PartitionedTopic) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        choices = _with_leader(view) or range(len(view.partitions))
        return choices[turn % len(choices)]

    def close(self) -> None:
        pass


class ConsistentRandomPartitioner:
    """Keys where librdkafka puts them by default, for topics that its clients have filled."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: PartitionedTopic) -> int:
        return crc32(key) % len(view.partitions) if key else UNDECIDED

    def close(self) -> None:
        pass


class UserPartitioner:
    """A program's own choice, checked."""

    def __init__(self, choose: Callable[[str, bytes | None, bytes | None, int], Any], owner: object) -> None:
        self._choose = choose
        self._owner = owner

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: PartitionedTopic) -> int:
        count = len(view.partitions)
        chosen = self._choose(topic, key, value, count)
        if chosen is None:
            return UNDECIDED
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise UserError(
                f"the partitioner {self._owner!r} chose {chosen!r} for a record of topic {topic}, which has "
                f"{count} partitions, counted from 0; it may also return None to leave the choice"
            )
        return chosen

    def close(self) -> None:
        close = getattr(self._owner, "close", None)
        if callable(close):
            close()


def partitioner_of(settings: Settings) -> Partitioner | None:
    """What `partitioner.class` stands for; None: the default, by the key."""
    given = settings.object("partitioner.class")
    if given is None or isinstance(given, str):
        return _named(given or "", settings.flag("partitioner.ignore.keys"))
    if isinstance(given, type):
        given = given()
    choose = getattr(given, "partition", None)
    if callable(choose):
        return UserPartitioner(choose, given)
    if callable(given):
        return UserPartitioner(given, given)
    raise SettingError(f"partitioner.class={given!r} is no name, no callable, and has no method partition(…)")


def _named(given: str, ignore_keys: bool) -> Partitioner | None:
    name = _NAMES.get(given)
    if name == _DEFAULT:
        return UniformStickyPartitioner() if ignore_keys else None
    if name == _STICKY:
        return UniformStickyPartitioner()
    if name == _ROUND_ROBIN:
        return RoundRobinPartitioner()
    if name == _CONSISTENT_RANDOM:
        return ConsistentRandomPartitioner()
    raise SettingError(
        f"partitioner.class={given!r} is not known; use default, sticky, round_robin or consistent_random, "
        "or give a callable or an object with partition(topic, key, value, partitions)"
    )


class BuiltInPartitioner:
    """Where undecided records go: to one partition of a topic until a batch of it is full, then to another (KIP-794).

    If queues differ, a partition is drawn the likelier the shorter its own is, so that a slow broker gets less instead
    of filling the buffer. Who has no place in the queues, or no leader, is not drawn while there are others.
    """

    def __init__(self, adaptive: bool = True, random: Random | None = None) -> None:
        self._adaptive = adaptive
        self._random = random or Random()
        self._current: dict[str, int] = {}

    def current(self, topic: str, view: PartitionedTopic) -> int:
        chosen = self._current.get(topic, UNDECIDED)
        if 0 <= chosen < len(view.partitions):
            return chosen
        return self.switch(topic, view, ())

    def switch(self, topic: str, view: PartitionedTopic, queued: Sequence[int]) -> int:
        """Draw the next; `queued[i]` batches wait for partition i, -1 where its broker takes none."""
        choices = _with_leader(view) or range(len(view.partitions))
        if queued:
            taking = [index for index in choices if index < len(queued) and queued[index] >= 0]
            choices = taking or choices
        if self._adaptive and len(queued) > max(choices):
            chosen = choices[self._weighted([queued[index] for index in choices])]
        else:
            chosen = choices[self._random.randrange(len(choices))]
        self._current[topic] = chosen
        return chosen

    def _weighted(self, queued: Sequence[int]) -> int:
        """One of them, the longest with weight 1, each other with as much more as it is shorter."""
        longest = max(queued)
        cumulative: list[int] = []
        total = 0
        for length in queued:
            total += longest + 1 - length
            cumulative.append(total)
        return bisect_right(cumulative, self._random.randrange(total))


def built_in_partitioner_of(settings: Settings, random: Random | None = None) -> BuiltInPartitioner:
    return BuiltInPartitioner(settings.flag("partitioner.adaptive.partitioning.enable"), random)


def _with_leader(view: PartitionedTopic) -> Sequence[int]:
    return [each.index for each in view.partitions if each.leader >= 0]
