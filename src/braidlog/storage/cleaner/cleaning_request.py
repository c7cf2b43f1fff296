"""What the broker asks a cleaner to do, and the result: plain values that also travel between processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from braidlog.core.errors import BraidlogError
from braidlog.storage.index.transaction_index import AbortedTxn


class LogCleaningAborted(BraidlogError):
    """The log was truncated, deleted or moved meanwhile; what was written so far is worthless."""


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The newest thing a live producer wrote: a data batch, or only a marker of this epoch."""

    producer_id: int
    last_data_offset: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """How much the cleaner may use (`log.cleaner.*`), or one of its threads."""

    dedupe_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288
    max_io_bytes_per_second: float = float("inf")

    def shared_by(self, threads: int) -> CleanerConfig:
        """Each thread's share: the settings speak of all of them together."""
        return CleanerConfig(
            dedupe_bytes=self.dedupe_bytes // threads,
            load_factor=self.load_factor,
            io_buffer_bytes=self.io_buffer_bytes // threads,
            max_io_bytes_per_second=self.max_io_bytes_per_second / threads,
        )


@dataclass(frozen=True, slots=True)
class CleaningRequest:
    """Everything about one pass over one log, so that it can run anywhere with nothing but the files."""

    directory: str
    # (base offset, size) of all inactive segments below `first_uncleanable`, oldest first.
    segments: tuple[tuple[int, int], ...]
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    delete_retention_ms: int
    max_segment_bytes: int
    max_index_bytes: int
    index_interval_bytes: int
    memory: CleanerConfig = field(default_factory=CleanerConfig)
    producers: tuple[LastRecord, ...] = ()
    # Transactions with data below `first_uncleanable` whose abort marker lies past it: while another one was open the
    # last stable offset stood between the two.
    aborted_later: tuple[AbortedTxn, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> CleaningRequest:
        fields = json.loads(text)
        fields["segments"] = tuple((base_offset, size) for base_offset, size in fields["segments"])
        fields["memory"] = CleanerConfig(**fields["memory"])
        fields["producers"] = tuple(LastRecord(**producer) for producer in fields["producers"])
        fields["aborted_later"] = tuple(AbortedTxn(*transaction) for transaction in fields["aborted_later"])
        return CleaningRequest(**fields)


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """One `.cleaned` segment and the ones it stands for."""

    base_offset: int
    replaces: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class CleaningResult:
    groups: tuple[CleanedGroup, ...]
    # The offset that the next pass starts from: the map was full here, or nothing was left.
    end_offset: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    # Records of a compacted topic without a key: they cannot be kept.
    records_without_key: int
    keys: int
    map_was_full: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> CleaningResult:
        fields = json.loads(text)
        fields["groups"] = tuple(
            CleanedGroup(group["base_offset"], tuple(group["replaces"]), group["size"]) for group in fields["groups"]
        )
        return CleaningResult(**fields)
