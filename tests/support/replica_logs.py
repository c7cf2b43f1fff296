"""The logs of a partition's replicas, as they lie on the disks of their brokers, batch by batch."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from braidlog.wire.records.reading import read_records
from support.eventually import eventually

_HEADER: Final = struct.Struct(">qiibI")


def differing_replicas(
    directories: Mapping[int, Path], partitions: Mapping[str, int], within_s: float = 30.0
) -> list[str]:
    """Partitions whose replicas do not hold the same bytes, once nobody writes any more.

    `directories` are those of the brokers, by their ids; `partitions` says how many replicas each has.
    """
    return _once_still(
        lambda: [
            text for partition, count in partitions.items() if (text := _difference(directories, partition, count))
        ],
        within_s,
    )


def differing_compacted_replicas(
    directories: Mapping[int, Path], partitions: Mapping[str, int], within_s: float = 30.0
) -> list[str]:
    """The same for topics that each broker compacts by itself: an offset that two of them have holds the same record,
    and the newest of each key is in all.
    """
    return _once_still(
        lambda: [
            text
            for partition, count in partitions.items()
            if (text := _compacted_difference(directories, partition, count))
        ],
        within_s,
    )


def _once_still(differing: Callable[[], list[str]], within_s: float) -> list[str]:
    found: list[str] = []

    def same() -> bool:
        try:
            found[:] = differing()
        except FileNotFoundError as gone:
            found[:] = [f"{gone.filename} was compacted away meanwhile"]
        return not found

    with suppress(AssertionError):
        eventually(same, within_s)
    return found


def _logs(directories: Mapping[int, Path], partition: str) -> dict[int, bytes]:
    return {
        broker: b"".join(path.read_bytes() for path in sorted((directory / partition).glob("*.log")))
        for broker, directory in directories.items()
        if (directory / partition).is_dir()
    }


def _compacted_difference(directories: Mapping[int, Path], partition: str, replicas: int) -> str:
    records = {
        broker: {each.offset: (each.key, each.value, each.timestamp) for each in read_records(log, 0, len(log))}
        for broker, log in _logs(directories, partition).items()
    }
    if len(records) != replicas:
        return f"{partition}: replicas on {sorted(records)}"
    newest = {broker: {record[0]: (at, record) for at, record in found.items()} for broker, found in records.items()}
    if any(each != next(iter(newest.values())) for each in newest.values()):
        return f"{partition}: the newest records of keys differ: {newest}"
    for offset in sorted(set().union(*records.values())):
        held = {broker: found[offset] for broker, found in records.items() if offset in found}
        if len(set(held.values())) > 1:
            return f"{partition} at offset {offset}: {held}"
    return ""


def _difference(directories: Mapping[int, Path], partition: str, replicas: int) -> str:
    logs = _logs(directories, partition)
    if len(logs) == replicas and len(set(logs.values())) == 1:
        return ""
    batches = {broker: dict(_batches(log)) for broker, log in logs.items()}
    for offset in sorted(set().union(*batches.values())):
        found = {broker: known.get(offset) for broker, known in batches.items()}
        if len(set(found.values())) > 1:
            return f"{partition} at offset {offset}: {found}"
    return f"{partition}: replicas on {sorted(logs)}"


def _batches(log: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Base offset, and leader epoch and checksum, of each batch."""
    position = 0
    while position + _HEADER.size <= len(log):
        offset, length, epoch, _, checksum = _HEADER.unpack_from(log, position)
        yield offset, (epoch, checksum)
        position += 12 + length
