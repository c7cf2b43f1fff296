"""What the clients of a real cluster did and were told, in the order in which they noted it.

Every record has a value of its own, so that it is known again wherever it turns up. Whoever sends notes it before, and
whoever is answered notes it after: of two operations the earlier one in the history may have come first, and one that
was answered before another was begun did.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from braidlog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Sent:
    """A writer sends its records to a partition one after the other; the keys of a compacted topic are its own."""

    writer: str
    partition: TopicPartition
    value: bytes
    key: bytes | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """With acks=all; the offset is -1 where the client was not told."""

    partition: TopicPartition
    value: bytes
    offset: int = -1


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The client stopped trying: the record may be there or not."""

    value: bytes
    problem: str


@dataclass(frozen=True, slots=True)
class Ending:
    """A commit or an abort is asked for."""

    transaction: str
    commits: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The coordinator said that it is done."""

    transaction: str
    commits: bool


@dataclass(frozen=True, slots=True)
class Read:
    """By a reader of committed records; in one session it goes forward only. A member of a group is named after it."""

    reader: str
    session: int
    partition: TopicPartition
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class CommittingOffset:
    """A group's offsets are committed in ascending order."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class FetchingOffset:
    """Asked by one at a time for each group and partition."""

    group: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """-1: nothing is committed."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """All that a reader of committed records finds between the start and the end of a partition, in the end."""

    partition: TopicPartition
    # Offset and value.
    records: tuple[tuple[int, bytes], ...]


Operation: TypeAlias = (
    Sent | Acknowledged | GaveUp | Ending | Ended
    | Read | Scanned
    | CommittingOffset | CommittedOffset | FetchingOffset | FetchedOffset
)  # fmt: skip


class TopicRules(NamedTuple):
    """What may be expected of a topic by those who write it."""

    # A record is there once, and those of one writer in the order in which it sent them.
    idempotent: bool = True
    # A record goes when its writer sends another of the same key.
    compacted: bool = False


DEFAULT_RULES: Final = TopicRules()


class HistoryRecorder:
    """Many threads note what they do in one history."""

    def __init__(self, rules: Mapping[str, TopicRules] | None = None) -> None:
        self.rules = dict(rules or {})
        self._operations: list[Operation] = []
        self._lock = threading.Lock()

    def note(self, *operations: Operation) -> None:
        with self._lock:
            self._operations += operations

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def operations(self) -> Sequence[Operation]:
        with self._lock:
            return tuple(self._operations)
