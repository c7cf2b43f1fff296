"""What recovery cannot keep is saved beside the log before it is cut off.

The bytes go to `lost-<first offset, 20 digits>.tail` in the partition's directory: Kafka ignores such names, deletion
of the topic takes them along, and nothing else removes them before a person has looked.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from braidlog.core.errors import CorruptLogError, StorageFault
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.segment_file_names import file_name
from braidlog.wire.records.batch import MESSAGE_V0_SIZE

TAIL_PREFIX: Final = "lost-"
TAIL_SUFFIX: Final = ".tail"
_CHUNK: Final = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LostRange:
    """Bytes that could not be kept: `first_offset` is the first offset lost, `end_offset` the first not lost."""

    path: str
    position: int
    size: int
    first_offset: int
    # None where it cannot be read from the bytes any more.
    end_offset: int | None
    reason: str
    # Where the bytes were saved; None only for zeros or part of a header on a disk with no room left.
    saved_as: str | None

    def __str__(self) -> str:
        last = f"{self.end_offset - 1}" if self.end_offset is not None else "an unknown end"
        kept = f"saved as {self.saved_as}" if self.saved_as is not None else "not saved, as the disk has no room"
        return (
            f"{self.path}: {self.size} bytes from position {self.position} on are lost (offsets {self.first_offset} "
            f"to {last}): {self.reason}; {kept}"
        )


@dataclass
class RecoveryReport:
    """What opening a log found and did."""

    clean: bool = True
    segments_scanned: int = 0
    bytes_scanned: int = 0
    lost: list[LostRange] = field(default_factory=list)
    rebuilt_indexes: list[str] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)
    # Zeros behind the last batch, cut off.
    blank_bytes: int = 0

    @property
    def found_whole(self) -> bool:
        """Nothing had to be mended."""
        return not (self.lost or self.rebuilt_indexes or self.removed_files or self.blank_bytes)


def is_blank(segment: LogSegment, position: int) -> bool:
    """Whether nothing but zeros follows: room that another broker set aside for the file, and did not fill.

    A few of them may be the beginning of a batch, whose first bytes are its offset's.
    """
    if segment.size - position < MESSAGE_V0_SIZE:
        return False
    while position < segment.size:
        chunk = segment.read_at(min(_CHUNK, segment.size - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


class LostTails:
    """Saves what is cut off one log."""

    def __init__(self, log: LocalLog) -> None:
        self._local_log = log

    def save_tail(self, segment: LogSegment, position: int, first_offset: int, reason: str, *, torn: bool) -> LostRange:
        """Copy everything from `position` on; raises StorageFault where that fails and the bytes may matter."""
        path = self._path_for(first_offset)
        end_offset = self._plausible_end(segment, position, first_offset)
        saved: str | None = path
        try:
            self._copy(segment, position, path)
        except OSError as problem:
            if self._local_log.files.exists(path):
                self._local_log.files.remove(path)
            if not torn:
                raise StorageFault(
                    self._local_log.data_directory,
                    f"{segment.log_path} is corrupt at position {position} ({reason}) and the rest cannot be saved "
                    f"before it is cut off: {problem.strerror}; make room",
                    problem,
                ) from problem
            saved = None
        lost = LostRange(segment.log_path, position, segment.size - position, first_offset, end_offset, reason, saved)
        _log.warning("%s", lost)
        return lost

    def save_segment(self, segment: LogSegment, reason: str) -> LostRange:
        """A whole segment that cannot stay: its log gets a tail's name, its indexes go.

        Later segments must still be in the log's list.
        """
        path = self._path_for(segment.base_offset)
        end_offset = self._plausible_end(segment, 0, segment.base_offset)
        lost = LostRange(segment.log_path, 0, segment.size, segment.base_offset, end_offset, reason, path)
        self._local_log.files.rename(segment.log_path, path)
        segment.remove()
        _log.warning("%s", lost)
        return lost

    def _path_for(self, first_offset: int) -> str:
        stem = f"{self._local_log.directory}/{TAIL_PREFIX}{file_name(first_offset)}"
        path = stem + TAIL_SUFFIX
        number = 1
        while self._local_log.files.exists(path):
            path = f"{stem}.{number}{TAIL_SUFFIX}"
            number += 1
        return path

    def _plausible_end(self, segment: LogSegment, position: int, first_offset: int) -> int | None:
        """The offset after the last batch from `position` on: where the next segment starts, or what the headers say.

        None unless they say it up to the end of the file: half a range would be taken for the whole.
        """
        for other in self._local_log.segments.items:
            if other.base_offset > segment.base_offset:
                return other.base_offset
        end_offset: int | None = None
        expected = first_offset
        walk = segment.walk(position)
        try:
            while walk.advance():
                # The first header may be what is corrupt: believe it only if it claims no more than its bytes can hold.
                if walk.base_offset < expected or walk.last_offset - expected > walk.size:
                    return None
                expected = end_offset = walk.last_offset + 1
        except CorruptLogError:
            return None
        return end_offset

    def _copy(self, segment: LogSegment, position: int, path: str) -> None:
        file = self._local_log.files.open_append(path)
        try:
            while position < segment.size:
                chunk = segment.read_at(min(_CHUNK, segment.size - position), position)
                if not chunk:
                    break
                file.writev([chunk])
                position += len(chunk)
            file.sync()
        finally:
            file.close()
        self._local_log.files.sync_dir(self._local_log.directory)
