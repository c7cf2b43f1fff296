"""Where a stream stands, in the form that Spark writes into its checkpoint.

    {"@ids":     {"orders": "Zb3…"},           the topics' ids, where the cluster has any
     "@initial": {"orders": {"2": 40}},        where the batch that ends here begins, for partitions in which that is
                                               not the end of the batch before: all of the first batch, new ones, and
                                               those in which records were lost
     "orders":   {"0": 12, "1": 7, "2": 55}}   the next offset to read, by topic and partition

No topic's name can have an @. Where a stream would begin that has no batch yet says `"@initial": true` instead: an
answer that the end of a batch never equals, so that Spark writes down the first batch at once, and with it where the
stream began. Spark compares offsets as text: keys are in order, and what is equal looks equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_range import OffsetRange, Offsets

_IDS: Final = "@ids"
_INITIAL: Final = "@initial"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    offsets: Offsets
    # By topic; those without an id are left out.
    ids: dict[str, str] = field(default_factory=dict)
    # Of the batch that ends here, where it does not begin at the end of the batch before.
    begins: Offsets = field(default_factory=dict)
    # Not the end of a batch: where the first would begin.
    is_initial: bool = False

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> StreamOffset:
        initial = written.get(_INITIAL, {})
        try:
            return cls(
                offsets=_offsets({key: each for key, each in written.items() if not key.startswith("@")}),
                ids={str(topic): str(each) for topic, each in written.get(_IDS, {}).items()},
                begins={} if initial is True else _offsets(initial),
                is_initial=initial is True,
            )
        except (AttributeError, TypeError, ValueError):
            raise UserError(
                f"the checkpoint holds an offset that this source did not write: {dict(written)!r:.200}; "
                "start with a new checkpoint location"
            ) from None

    def written(self) -> dict[str, Any]:
        """What Spark keeps; the same for the same offset, to the letter."""
        found: dict[str, Any] = {}
        if self.ids:
            found[_IDS] = {topic: self.ids[topic] for topic in sorted(self.ids)}
        if self.is_initial:
            found[_INITIAL] = True
        elif self.begins:
            found[_INITIAL] = by_topic(self.begins)
        return found | by_topic(self.offsets)


def ranges(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What a batch has to read: depends on nothing but these two, so that one tried again is the same batch.

    Spark asks again where a stream begins when it restarts before its first batch is done, and by then "latest" may
    have moved: so what `end` says about the beginning goes first.
    """
    if start == end:
        # What `end` says about a beginning is about the batch before.
        return []
    if start.is_initial and end.offsets.keys() - end.begins.keys():
        # Not written here: this source's first batches say it of every partition.
        raise UserError(
            "the checkpoint has a first batch that was begun and not finished by another source, such as Spark's own "
            "Kafka connector, and does not say where it begins; finish it with that source first, or start with a new "
            "checkpoint location"
        )
    before = {} if start.is_initial else start.offsets
    planned = (
        OffsetRange(
            place.topic,
            place.partition,
            end.begins.get(place, before.get(place, 0)),
            end.offsets[place],
            end.ids.get(place.topic, ""),
        )
        for place in sorted(end.offsets)
    )
    return [each for each in planned if each.size > 0]


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As Spark's Kafka connector writes offsets."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return found


def _offsets(written: Mapping[str, Mapping[str, int]]) -> Offsets:
    return dict(_entries(written))


def _entries(written: Mapping[str, Mapping[str, int]]) -> Iterable[tuple[TopicPartition, int]]:
    for topic, partitions in written.items():
        for partition, offset in partitions.items():
            yield TopicPartition(topic, int(partition)), int(offset)
