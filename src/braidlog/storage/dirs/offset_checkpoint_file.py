"""The four offset checkpoints that every data directory keeps, in Kafka's text format.

    0                       format version
    2                       number of entries
    orders 0 1042           topic, partition, offset
    orders 1 977

    recovery-point-offset-checkpoint   everything below this offset is synced to disk
    log-start-offset-checkpoint        first offset a reader may see (only where it is not a segment's base)
    replication-offset-checkpoint      high watermark
    cleaner-offset-checkpoint          first offset the cleaner has not compacted yet

A checkpoint is a promise about the past that is always safe to forget: without it more is re-read, re-cleaned or
re-replicated. So a missing file is empty, and a broken one is reported and treated as empty. A file of no bytes is one
that Kafka has made and not written yet.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.text_files import read_text, write_durably
from braidlog.storage.files import Files

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINT_NAMES: Final = (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_VERSION: Final = "0"

_log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    lines = [_VERSION, str(len(offsets))]
    lines += [f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items()]
    return "\n".join(lines) + "\n"


def decode_offsets(text: str, path: str) -> Offsets:
    """The entries of a checkpoint; raises CorruptLogError that names the file and the line."""
    if not text:
        return {}
    lines = text.splitlines()
    if lines[0].strip() != _VERSION:
        raise CorruptLogError(f"{path} line 1: unrecognized checkpoint version {lines[0]!r}, expected 0")
    if len(lines) < 2 or not lines[1].strip().isdigit():
        raise CorruptLogError(f"{path} line 2: expected the number of entries")
    expected = int(lines[1])
    offsets: Offsets = {}
    entries = [line for line in lines[2:] if line.strip()]
    for number, line in enumerate(entries, 3):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptLogError(f"{path} line {number}: {line!r} is not 'topic partition offset'") from None
    if len(entries) != expected:
        raise CorruptLogError(f"{path}: expected {expected} entries but found {len(entries)}")
    return offsets


class OffsetCheckpointFile:
    """One checkpoint file of one data directory; a write replaces the file as a whole or not at all."""

    __slots__ = ("_directory", "_files", "_name", "path", "problem")

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self.path = f"{directory}/{name}"
        # Why the last read found the file unusable; none if it was sound or missing.
        self.problem: str | None = None

    def read(self) -> Offsets:
        """The stored offsets; empty where the file is missing, or broken (then logged and kept in `problem`)."""
        self.problem = None
        text = read_text(self._files, self._directory, self.path)
        if text is None:
            return {}
        try:
            return decode_offsets(text, self.path)
        except CorruptLogError as problem:
            self.problem = str(problem)
            _log.warning("%s; treating it as empty, which costs time but no data", problem)
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        write_durably(self._files, self._directory, self.path, encode_offsets(offsets))
