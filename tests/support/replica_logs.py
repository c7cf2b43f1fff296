"""The logs of a partition's replicas, as they lie on the disks of their brokers, batch by batch."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from support.eventually import eventually

_HEADER: Final = struct.Struct(">qiibI")


def differing_replicas(
    directories: Mapping[int, Path], partitions: Mapping[str, int], within_s: float = 30.0
) -> list[str]:
    """Partitions whose replicas do not hold the same bytes, once nobody writes any more.

    `directories` are those of the brokers, by their ids; `partitions` says how many replicas each has.
    """
    differing: list[str] = []

    def same() -> bool:
        differing[:] = [
            text for partition, count in partitions.items() if (text := _difference(directories, partition, count))
        ]
        return not differing

    with suppress(AssertionError):
        eventually(same, within_s)
    return differing


def _difference(directories: Mapping[int, Path], partition: str, replicas: int) -> str:
    logs = {
        broker: b"".join(path.read_bytes() for path in sorted((directory / partition).glob("*.log")))
        for broker, directory in directories.items()
        if (directory / partition).is_dir()
    }
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
