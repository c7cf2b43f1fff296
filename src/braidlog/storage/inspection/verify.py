"""`braidlog log verify`: is everything in a partition's directory what it should be; reads only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from braidlog.core.errors import CorruptLogError, UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.storage.dirs.directory_names import DirectoryKind, parse_directory_name
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME as PARTITION_METADATA
from braidlog.storage.dirs.partition_metadata_file import decode_partition_metadata
from braidlog.storage.files import Files
from braidlog.storage.index.offset_index import MAX_RELATIVE_OFFSET
from braidlog.storage.inspection.batches import FoundBatch, Gap, walk_file
from braidlog.storage.inspection.rebuild import Progress, segment_bases
from braidlog.storage.inspection.verify_indexes import SegmentFacts, verify_indexes
from braidlog.storage.log.leader_epoch_file_cache import CHECKPOINT_NAME, decode_epochs
from braidlog.storage.log.segment_file_names import LOG_SUFFIX, STATE_SUFFIXES, file_name
from braidlog.storage.producers.snapshot_files import decode_snapshot, snapshot_offset
from braidlog.wire.records.reading import read_batch

ERROR: Final = "error"
# Not damage by itself: what a running broker, compaction or a crash leaves.
NOTE: Final = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    path: str
    message: str
    # The offsets that are lost, `end_offset` excluded; none where nothing is, or where the bytes do not show it.
    first_offset: int | None = None
    end_offset: int | None = None


@dataclass
class VerifyReport:
    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    # Of the producers that wrote it; -1 without any.
    max_producer_id: int = -1
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not any(finding.severity == ERROR for finding in self.findings)

    @property
    def lost(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.first_offset is not None]


def partition_directories(files: Files, path: str) -> list[str]:
    """`path` itself if it is a partition's directory, else those in it, as of a data directory."""
    path = path.rstrip("/") or "/"
    if not files.is_dir(path):
        raise UserError(f"{path} is not a directory")
    names = files.listdir(path)
    if any(name.endswith(LOG_SUFFIX) for name in names):
        return [path]
    found: list[str] = []
    for name in names:
        parsed = parse_directory_name(name)
        if parsed is not None and parsed.kind is not DirectoryKind.DELETE and files.is_dir(f"{path}/{name}"):
            found.append(f"{path}/{name}")
    if not found:
        raise UserError(f"{path} holds no partition directories")
    return found


def verify(files: Files, directory: str, *, records: bool = False, progress: Progress | None = None) -> VerifyReport:
    """One partition's directory; with `records` every record is decompressed and decoded as well."""
    directory = directory.rstrip("/")
    report = VerifyReport(directory)
    bases = segment_bases(files, directory)
    report.start_offset = bases[0]
    next_offset = bases[0]
    sizes = [files.size(f"{directory}/{file_name(base, LOG_SUFFIX)}") for base in bases]
    done = 0
    for number, base in enumerate(bases):
        upper = bases[number + 1] if number + 1 < len(bases) else None
        if base > next_offset and number > 0:
            report.findings.append(
                Finding(
                    NOTE,
                    directory,
                    f"no records between offsets {next_offset} and {base}: normal after compaction, "
                    f"else a segment is missing",
                )
            )
        next_offset = _SegmentCheck(files, report, base, upper, records).run(max(next_offset, base))
        done += sizes[number]
        if progress is not None:
            progress(done, sum(sizes), f"{directory}/{file_name(base, LOG_SUFFIX)}")
    report.segments = len(bases)
    report.bytes = done
    report.end_offset = next_offset
    _verify_side_files(files, report)
    return report


class _SegmentCheck:
    """Every batch of one segment, then its indexes against what was found."""

    def __init__(self, files: Files, report: VerifyReport, base: int, upper: int | None, records: bool) -> None:
        self._files = files
        self._report = report
        self._base = base
        self._upper = upper
        self._records = records
        self._path = f"{report.directory}/{file_name(base, LOG_SUFFIX)}"
        self._facts = SegmentFacts(base, self._path.removesuffix(LOG_SUFFIX))

    def run(self, next_offset: int) -> int:
        gap: Gap | None = None
        for found in walk_file(self._files, self._path, self._base):
            if isinstance(found, Gap):
                gap = found
                continue
            if gap is not None:
                self._lost(gap, next_offset, found.header.base_offset)
                gap = None
            next_offset = self._check_batch(found, next_offset)
        if gap is not None:
            self._lost(gap, next_offset, self._upper)
        self._facts.next_offset = next_offset
        for message in verify_indexes(self._files, self._facts):
            self._error(message)
        return next_offset

    def _check_batch(self, found: FoundBatch, next_offset: int) -> int:
        header = found.header
        report = self._report
        report.batches += 1
        report.records += max(header.count, 0)
        report.max_producer_id = max(report.max_producer_id, header.producer_id)
        self._facts.add(found.position, header)
        if found.damage is not None:
            self._error(found.damage, header.base_offset, header.next_offset)
        elif self._records:
            try:
                read_batch(found.data, header, check_crc=False)
            except ProtocolError as problem:
                reason = f"batch at position {found.position}: {problem.message}"
                self._error(reason, header.base_offset, header.next_offset)
        if header.base_offset < next_offset and header.magic == 2:
            self._error(
                f"the batch at position {found.position} starts at offset {header.base_offset}, "
                f"but {next_offset} is due"
            )
        if header.last_offset - self._base > MAX_RELATIVE_OFFSET:
            self._error(f"offset {header.last_offset} is too far from the segment's base")
            return next_offset
        if self._upper is not None and header.last_offset >= self._upper:
            self._error(f"offset {header.last_offset} lies in the next segment, which starts at {self._upper}")
            return next_offset
        return max(next_offset, header.next_offset)

    def _lost(self, gap: Gap, first: int, end: int | None) -> None:
        if gap.is_torn_tail and self._upper is None:
            message = f"{gap.reason}: an unfinished write, cut off at the next start"
            self._report.findings.append(Finding(NOTE, self._path, message))
            return
        until = f"to {end - 1}" if end is not None else "on"
        self._error(f"{gap.reason}; {gap.size} bytes cannot be read, offsets from {first} {until} are lost", first, end)

    def _error(self, message: str, first: int | None = None, end: int | None = None) -> None:
        self._report.findings.append(Finding(ERROR, self._path, message, first, end))


def _verify_side_files(files: Files, report: VerifyReport) -> None:
    """Snapshots, epochs, the topic id, and what interrupted work has left."""
    for name in files.listdir(report.directory):
        path = f"{report.directory}/{name}"
        try:
            if name.endswith(STATE_SUFFIXES):
                report.findings.append(
                    Finding(NOTE, path, "left by work that was interrupted or is waiting for removal")
                )
            elif name.endswith(".tail"):
                report.findings.append(Finding(NOTE, path, "bytes that an earlier recovery could not keep"))
            elif snapshot_offset(name) is not None:
                decode_snapshot(files.read_bytes(path), path)
            elif name == CHECKPOINT_NAME:
                for epoch, start in decode_epochs(files.read_bytes(path), path):
                    if start > report.end_offset:
                        message = f"epoch {epoch} starts at {start}, past the end {report.end_offset} of the log"
                        report.findings.append(Finding(NOTE, path, message))
            elif name == PARTITION_METADATA:
                decode_partition_metadata(files.read_bytes(path).decode("utf-8", "replace"), path)
        except CorruptLogError as problem:
            report.findings.append(Finding(ERROR, path, str(problem)))
