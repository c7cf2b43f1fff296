"""Where a group's offsets shall go: the choice, the file that may hold it, and the plan that follows from both."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.cli.options import INT64_MAX, offset_number, partition_number, shortened
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

TO_EARLIEST: Final = "earliest"
TO_LATEST: Final = "latest"
TO_CURRENT: Final = "current"
TO_OFFSET: Final = "offset"
TO_TIME: Final = "time"
SHIFT_BY: Final = "shift"
FROM_FILE: Final = "file"

_DURATION: Final = re.compile(
    r"P(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNIT_S: Final = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class ResetTarget(NamedTuple):
    """What was chosen; the number is an offset, a distance or milliseconds since 1970, where it takes one."""

    kind: str
    number: int = 0


class Bounds(NamedTuple):
    """Of a partition: start <= end, and the first offset at the time that was asked for (-1: nothing is that young)."""

    start: int
    end: int
    at_time: int = -1


class Change(NamedTuple):
    group: str
    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


def plan_for(
    group: str,
    target: ResetTarget,
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    from_file: Mapping[TopicPartition, int],
) -> tuple[list[Change], list[str]]:
    """The new offset of each partition of `bounds`, and what a person should know about them."""
    changes: list[Change] = []
    notes: list[str] = []
    for partition, limits in bounds.items():
        current = committed.get(partition)
        if target.kind == SHIFT_BY and current is None:
            raise UserError(
                f"group {group} has committed nothing for {partition}, so there is nothing to shift; "
                "name the partitions that it has, or choose another way"
            )
        wanted = _wanted(target, limits, current, from_file.get(partition, 0))
        new = wanted if target.kind == TO_CURRENT else min(max(wanted, limits.start), limits.end)
        if new > wanted:
            notes.append(f"{partition} starts at offset {new}: it is used instead of {wanted}")
        elif new < wanted:
            notes.append(f"{partition} ends at offset {new}: it is used instead of {wanted}")
        if target.kind == TO_TIME and limits.at_time < 0:
            notes.append(f"{partition} has no record at or after that time: its end, offset {new}, is used")
        changes.append(Change(group, partition.topic, partition.partition, current, new))
    return changes, notes


def _wanted(target: ResetTarget, limits: Bounds, current: int | None, in_file: int) -> int:
    if target.kind == TO_EARLIEST:
        return limits.start
    if target.kind == TO_LATEST:
        return limits.end
    if target.kind == TO_CURRENT:
        return limits.end if current is None else current
    if target.kind == TO_OFFSET:
        return target.number
    if target.kind == SHIFT_BY:
        assert current is not None
        return current + target.number
    if target.kind == TO_TIME:
        return limits.end if limits.at_time < 0 else limits.at_time
    return in_file


FileOffsets = dict[str | None, dict[TopicPartition, int]]


def read_file(lines: Iterable[str], name: str) -> FileOffsets:
    """Offsets by group; None stands for the one group of lines that name none.

    ```
    topic,partition,offset            for one group
    group,topic,partition,offset      for several
    ```
    """
    found: FileOffsets = {}
    rows = csv.reader(lines)
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) not in (3, 4):
                raise ValueError(f"{len(row)} columns")
            group = row[0].strip() if len(row) == 4 else None
            topic, partition, offset = (cell.strip() for cell in row[-3:])
            if not topic or group == "":
                raise ValueError("an empty name")
            place = TopicPartition(topic, partition_number(partition))
            found.setdefault(group, {})[place] = offset_number(offset)
    except UnicodeDecodeError as problem:
        raise UserError(f"{name} is not UTF-8 text; give a CSV file as --export prints it") from problem
    except (ValueError, csv.Error, argparse.ArgumentTypeError) as problem:
        raise UserError(
            f"{name}, line {rows.line_num}: {problem}; each line is TOPIC,PARTITION,OFFSET or "
            "GROUP,TOPIC,PARTITION,OFFSET"
        ) from problem
    if not found:
        raise UserError(f"{name} has no lines; each is TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET")
    return found


# Types for argparse.


def shift(text: str) -> int:
    plain = text.strip()
    sign, digits = (-1, plain[1:]) if plain.startswith("-") else (1, plain.removeprefix("+"))
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19 or int(digits) > INT64_MAX:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a whole number of offsets such as 10 or -10")
    return sign * int(digits)


def duration_ms(text: str) -> int:
    """ISO 8601: `PT30M`, `P1DT12H`."""
    found = _DURATION.fullmatch(text.strip())
    parts = {name: value for name, value in found.groupdict().items() if value} if found else {}
    if not parts:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not an ISO 8601 duration such as PT30M, PT1H30M or P1D")
    return round(sum(float(value.replace(",", ".")) * _UNIT_S[name] for name, value in parts.items()) * 1000)
