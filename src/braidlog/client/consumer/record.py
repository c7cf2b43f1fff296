"""One record as a program gets it (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Any, Final

from mypy_extensions import i32, i64, mypyc_attr

from braidlog.core.types import TopicPartition
from braidlog.wire.records.batch import CREATE_TIME

Headers = tuple[tuple[str, bytes | None], ...]

_SHOWN: Final = 80


@mypyc_attr(acyclic=True)
class ConsumerRecord:
    """What was produced, and where it lies.

    `timestamp` is in milliseconds since 1970; `timestamp_type` says whether the producer (0) or the broker (1) set
    it, -1 where there is none. `key` and `value` are bytes unless the consumer has deserializers.

    The garbage collector does not look for cycles through records, of which there are millions and cycles never: an
    object that a deserializer made must not point back to the record it is in, or both stay for ever.
    """

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: i32,
        offset: i64,
        timestamp: i64,
        key: Any,
        value: Any,
        headers: Headers = (),
        timestamp_type: i32 = CREATE_TIME,
        leader_epoch: i32 = -1,
    ) -> None:
        self.topic = topic
        self.partition: i32 = partition
        self.offset: i64 = offset
        self.timestamp: i64 = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_type: i32 = timestamp_type
        self.leader_epoch: i32 = leader_epoch

    @property
    def timestamp_ms(self) -> int:
        """`timestamp` by the name that it has where a record is sent."""
        return int(self.timestamp)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it lies in, as seek, pause and commit take it."""
        return TopicPartition(self.topic, int(self.partition))

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled or not, a record is copied and pickled as the call that makes it again.
        return ConsumerRecord, (
            self.topic,
            int(self.partition),
            int(self.offset),
            int(self.timestamp),
            self.key,
            self.value,
            self.headers,
            int(self.timestamp_type),
            int(self.leader_epoch),
        )

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord({self.topic}-{self.partition} at {self.offset}, timestamp={self.timestamp}, "
            f"key={_shown(self.key)}, value={_shown(self.value)}, headers={self.headers!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.partition == other.partition
            and self.topic == other.topic
            and self.timestamp == other.timestamp
            and bool(self.key == other.key)
            and bool(self.value == other.value)
            and self.headers == other.headers
        )

    def __hash__(self) -> int:
        return hash((self.topic, int(self.partition), int(self.offset)))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
