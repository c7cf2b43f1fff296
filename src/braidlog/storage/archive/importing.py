"""`braidlog log import`: an archive's partitions into the data directory of a stopped broker.

    verify     every checksum and every batch of the archive; what does not fit refuses it before anything is written
    stage      copies in directories called `-delete`, which a broker that starts removes
    publish    checkpoints, then the names that count; the topic is registered after that
    discard    undoes both, where the topic cannot be registered

Records keep their offsets and leader epochs. After them a new segment begins, with a snapshot of no producers: the ids
in the records are those of another cluster, and must not be taken for producers of this one.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.storage.archive.copying import Progress, checksum, copied, sync_directory
from braidlog.storage.archive.exporting import last_epoch
from braidlog.storage.archive.manifest import FILE_NAME, MAX_BYTES, ArchivedPartition, Manifest, decode_manifest
from braidlog.storage.dirs.directory_names import DirectoryKind, marked_name, parse_directory_name
from braidlog.storage.dirs.offset_checkpoint_file import (
    CHECKPOINT_NAMES,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    OffsetCheckpointFile,
)
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME as PARTITION_METADATA
from braidlog.storage.dirs.partition_metadata_file import encode_partition_metadata
from braidlog.storage.files import OsFiles
from braidlog.storage.inspection.verify import verify
from braidlog.storage.log.segment_file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from braidlog.storage.producers.snapshot_files import encode_snapshot

# Indexes of the new segments, checkpoints, and so that the disk is not full at once.
_SPARE_BYTES: Final = 16 << 20


def read_archive(archive: Path, progress: Progress | None = None) -> Manifest:
    """The manifest, after everything in the archive was found to be as it says; changes nothing."""
    path = archive / FILE_NAME
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"{path} is too large for a manifest")
        manifest = decode_manifest(path.read_bytes(), str(path))
    except OSError as problem:
        raise UserError(
            f"{archive} is no whole archive of a topic, {path.name} cannot be read: {problem.strerror}"
        ) from None
    done = 0
    for each in manifest.partitions:
        directory = archive / f"{manifest.topic}-{each.partition}"
        if progress is not None:
            progress(done, manifest.bytes, str(directory))
        _verify_files(directory, each)
        _verify_batches(directory, each)
        done += sum(file.size for file in each.files)
    return manifest


def _verify_files(directory: Path, partition: ArchivedPartition) -> None:
    try:
        names = set(os.listdir(directory))
    except OSError as problem:
        raise _refusal(directory, f"cannot be read ({problem.strerror})") from None
    known = {file.name for file in partition.files}
    if names != known:
        raise _refusal(directory, f"has other files than the manifest: {sorted(names ^ known)[:3]}")
    for file in partition.files:
        path = directory / file.name
        if path.is_symlink() or not path.is_file():
            raise _refusal(path, "is no file")
        if path.stat().st_size != file.size:
            raise _refusal(path, f"has {path.stat().st_size} bytes, and the manifest says {file.size}")
        if checksum(path) != file.sha256:
            raise _refusal(path, "does not match its checksum")


def _verify_batches(directory: Path, partition: ArchivedPartition) -> None:
    report = verify(OsFiles(), str(directory))
    if not report.is_sound:
        raise _refusal(directory, next(finding.message for finding in report.findings if finding.severity == "error"))
    facts = (report.end_offset, report.max_producer_id)
    if facts != (partition.end_offset, partition.max_producer_id) or report.start_offset > partition.start_offset:
        raise _refusal(directory, f"ends at {report.end_offset}, and the manifest says {partition.end_offset}")
    if last_epoch(directory) > partition.leader_epoch:
        raise _refusal(directory, "has later leader epochs than the manifest says")


def _refusal(path: Path, problem: str) -> UserError:
    return UserError(f"{path} {problem}: the archive is torn or was changed; nothing was imported")


@dataclass
class StagedImport:
    """Copies that no broker sees yet; to be published or discarded."""

    directory: Path
    topic: str
    # Where each partition's copy is now, and what it is.
    copies: list[tuple[Path, ArchivedPartition]]

    def publish(self) -> None:
        """A crash before the last step leaves directories that the next start removes or sets aside."""
        self._write_checkpoints()
        for place, (path, each) in enumerate(self.copies):
            final = self.directory / f"{self.topic}-{each.partition}"
            os.rename(path, final)
            self.copies[place] = (final, each)
        sync_directory(self.directory)

    def discard(self) -> None:
        for path, _ in self.copies:
            shutil.rmtree(path, ignore_errors=True)
        self._forget_checkpoints()

    def _write_checkpoints(self) -> None:
        ends = {TopicPartition(self.topic, each.partition): each.end_offset for _, each in self.copies}
        starts = {TopicPartition(self.topic, each.partition): each.start_offset for _, each in self.copies}
        for name, offsets in ((RECOVERY_POINTS, ends), (HIGH_WATERMARKS, ends), (START_OFFSETS, starts)):
            added = {partition: offset for partition, offset in offsets.items() if offset}
            if added:
                checkpoint = OffsetCheckpointFile(OsFiles(), str(self.directory), name)
                checkpoint.write({**checkpoint.read(), **added})

    def _forget_checkpoints(self) -> None:
        own = {TopicPartition(self.topic, each.partition) for _, each in self.copies}
        for name in CHECKPOINT_NAMES:
            checkpoint = OffsetCheckpointFile(OsFiles(), str(self.directory), name)
            offsets = checkpoint.read()
            if own & offsets.keys():
                checkpoint.write({key: value for key, value in offsets.items() if key not in own})


def stage_import(
    archive: Path, manifest: Manifest, directory: Path, topic: str, topic_id: bytes, progress: Progress | None = None
) -> StagedImport:
    """Copy the partitions of an archive that `read_archive` found sound; UserError where they cannot be put there."""
    for entry in directory.iterdir():
        parsed = parse_directory_name(entry.name)
        if parsed is not None and parsed.kind is not DirectoryKind.DELETE and parsed.partition.topic == topic:
            raise UserError(f"{entry} is there already: import the topic under another name, or move it away")
    free = OsFiles().disk_usage(str(directory)).free
    if free < manifest.bytes + _SPARE_BYTES:
        raise UserError(f"{directory} has room for {free} bytes, and the archive takes {manifest.bytes}")
    staged = StagedImport(directory, topic, [])
    done = 0
    try:
        for each in manifest.partitions:
            target = directory / marked_name(TopicPartition(topic, each.partition), DirectoryKind.DELETE)
            target.mkdir()
            staged.copies.append((target, each))
            if progress is not None:
                progress(done, manifest.bytes, str(target))
            _copy(archive / f"{manifest.topic}-{each.partition}", target, each)
            _begin_segment(target, each)
            metadata = encode_partition_metadata(topic_id).encode()
            OsFiles().write_atomic(str(target / PARTITION_METADATA), metadata, sync=True)
            sync_directory(target)
            done += sum(file.size for file in each.files)
    except BaseException:
        staged.discard()
        raise
    return staged


def _copy(source: Path, target: Path, partition: ArchivedPartition) -> None:
    for file in partition.files:
        if copied(source / file.name, target / file.name) != (file.size, file.sha256):
            raise _refusal(source / file.name, "changed while it was read")


def _begin_segment(target: Path, partition: ArchivedPartition) -> None:
    end = partition.end_offset
    path = target / file_name(end, LOG_SUFFIX)
    if not path.exists():
        path.touch()
    OsFiles().write_atomic(str(target / file_name(end, SNAPSHOT_SUFFIX)), encode_snapshot([]))
