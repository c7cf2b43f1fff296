"""Who read what, in which generation: the notes of a group's members, and the proof that they shared as a group must.

A member is a process of its own that prints a note, one line of JSON, whenever partitions are given to it or taken
from it, for every run of records it reads, and for every commit that was acknowledged. Notes carry the system's
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

Partition = tuple[str, int]
Kind = Literal["assigned", "revoked", "lost", "read", "committed", "refused", "left"]
MARK = "note "


@dataclass(frozen=True)
class Note:
    kind: Kind
    # A static member keeps its name over several processes.
    member: str
    at: float
    # Of the classic protocol, or the member's epoch of the newer one.
    generation: int = -1
    partitions: tuple[Partition, ...] = ()
    # A run of records (the first of them and one past the last), or what was committed.
    offsets: tuple[tuple[str, int, int, int], ...] = ()
    error: str = ""


def write_note(
    kind: Kind,
    member: str,
    generation: int = -1,
    partitions: Iterable[Partition] = (),
    offsets: Iterable[tuple[str, int, int, int]] = (),
    error: str = "",
) -> None:
    """On standard output at once: whoever is killed next has still said it."""
    note = json.dumps([kind, member, time.monotonic(), generation, sorted(partitions), sorted(offsets), error])
    # In one piece: other threads may write a log to the same place.
    sys.stdout.write(f"{MARK}{note}\n")
    sys.stdout.flush()


def read_notes(lines: Iterable[str]) -> list[Note]:
    return [_note(line) for line in lines if line.startswith(MARK)]


def _note(line: str) -> Note:
    kind, member, at, generation, partitions, offsets, error = json.loads(line.removeprefix(MARK))
    return Note(
        kind,
        member,
        at,
        generation,
        tuple((topic, index) for topic, index in partitions),
        tuple((topic, index, first, end) for topic, index, first, end in offsets),
        error,
    )


def runs(records: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int, int]]:
    """(topic, partition, offset)s in the order they were read, as runs of offsets that follow each other."""
    found: list[tuple[str, int, int, int]] = []
    open_runs: dict[Partition, int] = {}
    for topic, index, offset in records:
        place = open_runs.get((topic, index))
        if place is not None and found[place][3] == offset:
            found[place] = (topic, index, found[place][2], offset + 1)
        else:
            open_runs[topic, index] = len(found)
            found.append((topic, index, offset, offset + 1))
    return found


def owned(notes: Sequence[Note]) -> set[Partition]:
    """What one member owns by its latest note."""
    found: set[Partition] = set()
    for note in notes:
        if note.kind == "assigned":
            found.update(note.partitions)
        elif note.kind in ("revoked", "lost"):
            found.difference_update(note.partitions)
        elif note.kind == "left":
            found.clear()
    return found


@dataclass
class History:
    """All that the members of one group noted, by process; the checks name what broke, by whom, where."""

    notes: dict[str, list[Note]] = field(default_factory=dict)

    def check(self, written: Mapping[Partition, int]) -> None:
        """Everything a group promises, whatever happened to its members."""
        self.check_one_owner_in_a_generation()
        self.check_commits_are_honoured()
        self.check_all_is_read(written)

    def check_one_owner_in_a_generation(self) -> None:
        given: dict[tuple[Partition, int], str] = {}
        for notes in self.notes.values():
            for note in notes:
                here = note.partitions if note.kind == "assigned" else ()
                read = [(topic, index) for topic, index, _, _ in note.offsets] if note.kind == "read" else []
                for partition in (*here, *read):
                    other = given.setdefault((partition, note.generation), note.member)
                    assert other == note.member, (
                        f"{partition} was had in generation {note.generation} by both {other} and {note.member}"
                    )

    def check_commits_are_honoured(self) -> None:
        """Whoever gets a partition goes on at or after what was acknowledged as committed before, and leaves no gap."""
        acknowledged: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
        for notes in self.notes.values():
            for note in notes:
                if note.kind == "committed":
                    for topic, index, _, end in note.offsets:
                        acknowledged[topic, index].append((note.at, end))
        for name, notes in self.notes.items():
            for since, partition, first in _first_reads(notes):
                before = [end for at, end in acknowledged[partition] if at < since]
                assert first >= max(before, default=0), (
                    f"{name} read {partition} from {first} although {max(before)} was committed"
                )

    def check_all_is_read(self, written: Mapping[Partition, int]) -> None:
        read = self.read()
        for partition, count in written.items():
            missing = sorted(set(range(count)) - set(read.get(partition, ())))
            assert not missing, f"{partition}: {len(missing)} of {count} records were not read, the first {missing[:5]}"

    def check_nothing_is_read_twice(self) -> None:
        """Holds only where every member came and went in good order."""
        for partition, offsets in self.read().items():
            twice = [offset for offset, after in pairwise(sorted(offsets)) if offset == after]
            assert not twice, f"{partition}: {len(twice)} records were read twice, the first {twice[:5]}"

    def read(self) -> dict[Partition, list[int]]:
        found: dict[Partition, list[int]] = defaultdict(list)
        for notes in self.notes.values():
            for note in notes:
                if note.kind == "read":
                    for topic, index, first, end in note.offsets:
                        found[topic, index].extend(range(first, end))
        return found

    def committed(self) -> dict[Partition, int]:
        """The highest acknowledged commit of each partition."""
        found: dict[Partition, int] = {}
        for notes in self.notes.values():
            for note in notes:
                if note.kind == "committed":
                    for topic, index, _, end in note.offsets:
                        found[topic, index] = max(end, found.get((topic, index), 0))
        return found

    def generations(self) -> list[int]:
        return sorted({note.generation for notes in self.notes.values() for note in notes if note.kind == "assigned"})


def _first_reads(notes: Sequence[Note]) -> list[tuple[float, Partition, int]]:
    """For each time a partition was newly given to a member: when, and the first offset it then read."""
    given: dict[Partition, float] = {}
    held: set[Partition] = set()
    found = []
    for note in notes:
        if note.kind == "assigned":
            given.update({partition: note.at for partition in note.partitions if partition not in held})
            held.update(note.partitions)
        elif note.kind in ("revoked", "lost"):
            held.difference_update(note.partitions)
            for partition in note.partitions:
                given.pop(partition, None)
        elif note.kind == "read":
            for topic, index, first, _ in note.offsets:
                since = given.pop((topic, index), None)
                if since is not None:
                    found.append((since, (topic, index), first))
    return found
