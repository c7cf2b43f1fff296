"""What the filters of a query say of topics, partitions, offsets and times, so that less has to be read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pyspark_braidlog.source.offset_range import OffsetRange

_TOPIC: Final = ("topic",)
_PARTITION: Final = ("partition",)
_OFFSET: Final = ("offset",)
_TIMESTAMP: Final = ("timestamp",)
# Columns in which no record has a null.
_NEVER_NULL: Final = (_TOPIC, _PARTITION, _OFFSET)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_COMPARED: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_STRINGS: Final = (StringStartsWith, StringEndsWith, StringContains)


@dataclass(frozen=True)
class Narrowing:
    """What is left to read: partitions that all `kept` hold for, offsets in [first, end), records from a time on."""

    kept: tuple[Filter, ...] = ()
    first_offset: int = 0
    end_offset: int | None = None
    # No record before the first one of this time or later is wanted; some after it may not be, either.
    from_ms: int | None = None

    def keeps(self, topic: str, partition: int) -> bool:
        return all(_holds(each, topic, partition) for each in self.kept)

    def narrowed(self, work: OffsetRange) -> OffsetRange:
        """The part of a range that is wanted by its offsets; perhaps none of it."""
        start = max(work.start, self.first_offset)
        end = work.end if self.end_offset is None else min(work.end, self.end_offset)
        return work._replace(start=min(start, work.end), end=max(end, min(start, work.end)))


NOTHING_PUSHED: Final = Narrowing()


def pushed(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What can be said of the plan, and the filters that Spark still has to look at."""
    found = NOTHING_PUSHED
    left: list[Filter] = []
    for each in filters:
        column = _column(each)
        if isinstance(each, IsNotNull) and column in _NEVER_NULL:
            continue
        if column in (_TOPIC, _PARTITION) and _is_decidable(each):
            found = replace(found, kept=(*found.kept, each))
            continue
        if column == _OFFSET:
            span = _span(each)
            if span is not None:
                found = _within(found, span[0], span[1])
                if span[2]:
                    continue
        elif column == _TIMESTAMP:
            found = _from_time(found, each)
        left.append(each)
    return found, left


def _column(asked: Filter) -> tuple[str, ...]:
    inner = asked.child if isinstance(asked, Not) else asked
    return tuple(getattr(inner, "attribute", ()))


# Topics and partitions


def _is_decidable(asked: Filter) -> bool:
    inner = asked.child if isinstance(asked, Not) else asked
    kind: type = str if _column(asked) == _TOPIC else int
    if isinstance(inner, In):
        return bool(inner.value) and all(_is(each, kind) for each in inner.value)
    if isinstance(inner, _STRINGS) and kind is not str:
        return False
    return type(inner) in _COMPARED and _is(getattr(inner, "value", None), kind)


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _holds(asked: Filter, topic: str, partition: int) -> bool:
    if isinstance(asked, Not):
        return not _holds(asked.child, topic, partition)
    value: object = topic if _column(asked) == _TOPIC else partition
    if isinstance(asked, In):
        return value in asked.value
    return _COMPARED[type(asked)](value, getattr(asked, "value", None))


# Offsets


def _span(asked: Filter) -> tuple[int, int | None, bool] | None:
    """The offsets [first, end) outside of which the filter is false, and whether it is true of all within."""
    value = getattr(asked, "value", None)
    if isinstance(asked, In):
        if not asked.value or not all(_is(each, int) for each in asked.value):
            return None
        first, last = min(asked.value), max(asked.value)
        return first, last + 1, len(set(asked.value)) == last + 1 - first
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    match asked:
        case EqualTo() | EqualNullSafe():
            return value, value + 1, True
        case GreaterThan():
            return value + 1, None, True
        case GreaterThanOrEqual():
            return value, None, True
        case LessThan():
            return 0, value, True
        case LessThanOrEqual():
            return 0, value + 1, True
        case _:
            return None


def _within(found: Narrowing, first: int, end: int | None) -> Narrowing:
    ends = [each for each in (found.end_offset, end) if each is not None]
    return replace(found, first_offset=max(found.first_offset, first), end_offset=min(ends, default=None))


# Times


def _from_time(found: Narrowing, asked: Filter) -> Narrowing:
    """Only lower bounds: the times of records may go back, so after a later one an earlier one may come."""
    value = getattr(asked, "value", None)
    if isinstance(asked, In):
        times = [_milliseconds(each) for each in asked.value]
    elif isinstance(asked, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual)):
        times = [_milliseconds(value)]
    else:
        return found
    known = [each for each in times if each is not None]
    if not known or len(known) < len(times):
        return found
    earliest = min(known)
    # Records without a time have -1: a bound before 1970 leaves nothing out.
    if earliest < 0:
        return found
    return replace(found, from_ms=earliest if found.from_ms is None else max(found.from_ms, earliest))


def _milliseconds(value: object) -> int | None:
    """Rounded down: a record of that millisecond may be asked for."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)
