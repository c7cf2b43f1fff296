"""`braidlog log export`: a topic's segments out of the data directories of a stopped broker, into a new archive."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from braidlog.config.topic_names import is_internal
from braidlog.core.errors import CorruptLogError, UserError
from braidlog.core.types import TopicPartition
from braidlog.storage.archive.copying import Progress, copied, stopped_broker, sync_directory
from braidlog.storage.archive.manifest import (
    FILE_NAME,
    ArchivedFile,
    ArchivedPartition,
    Manifest,
    encode_manifest,
    is_archived,
)
from braidlog.storage.dirs.directory_names import DirectoryKind, parse_directory_name
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, START_OFFSETS, OffsetCheckpointFile
from braidlog.storage.dirs.partition_metadata_file import read_topic_id
from braidlog.storage.files import OsFiles
from braidlog.storage.inspection.verify import VerifyReport, verify
from braidlog.storage.log.leader_epoch_file_cache import CHECKPOINT_NAME, decode_epochs
from braidlog.storage.log.segment_file_names import SWAP_SUFFIX
from braidlog.storage.producers.snapshot_files import decode_snapshot, snapshot_offset


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What only the store knows of a topic: its configs, how many partitions it has, and their leader epochs."""

    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


def export_topic(
    topic: str, directories: Sequence[str], archive: Path, facts: TopicFacts, progress: Progress | None = None
) -> Manifest:
    """Every partition is verified first. The archive takes its name once all of it is on disk."""
    if is_internal(topic):
        raise UserError(f"{topic} is the broker's own: offsets and transactions of groups cannot be moved this way")
    if archive.exists():
        raise UserError(f"{archive} exists: name a directory that does not")
    with stopped_broker(directories) as owner:
        found = _partition_paths(topic, directories, facts.partitions)
        reports = [_verified(path) for path in found]
        ids = {read_topic_id(OsFiles(), str(path.parent), str(path)) for path in found}
        temporary = archive.with_name(f"{archive.name}.tmp")
        try:
            if temporary.exists():
                shutil.rmtree(temporary)
            temporary.mkdir(mode=0o700)
        except OSError as problem:
            raise UserError(f"cannot write {archive}: {problem.strerror}") from problem
        try:
            total = sum(report.bytes for report in reports)
            done = 0
            partitions: list[ArchivedPartition] = []
            for place, (path, report) in enumerate(zip(found, reports, strict=True)):
                if progress is not None:
                    progress(done, total, str(path))
                partitions.append(_copy_partition(topic, place, path, report, temporary, facts))
                done += report.bytes
            assert owner.cluster_id is not None
            assert owner.node_id is not None
            manifest = Manifest(
                owner.cluster_id,
                owner.node_id,
                topic,
                ids.pop() if len(ids) == 1 else None,
                dict(facts.configs),
                tuple(partitions),
                time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            )
            OsFiles().write_atomic(str(temporary / FILE_NAME), encode_manifest(manifest))
            sync_directory(temporary)
            os.rename(temporary, archive)
            sync_directory(archive.absolute().parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return manifest


def _partition_paths(topic: str, directories: Sequence[str], count: int | None) -> list[Path]:
    found: dict[int, Path] = {}
    for directory in directories:
        for entry in sorted(Path(directory).iterdir()):
            parsed = parse_directory_name(entry.name)
            if parsed is None or parsed.partition.topic != topic or not entry.is_dir():
                continue
            if parsed.kind is DirectoryKind.CURRENT:
                if parsed.partition.partition in found:
                    raise UserError(f"{entry} and {found[parsed.partition.partition]} are the same partition")
                found[parsed.partition.partition] = entry
    if not found:
        raise UserError(f"no partition of topic {topic!r} is in {', '.join(directories)}")
    wanted = max(found) + 1 if count is None else count
    missing = [index for index in range(wanted) if index not in found]
    if missing:
        raise UserError(
            f"{topic} has {wanted} partitions, and {missing} are not in {', '.join(directories)}: name all of log.dirs "
            "with --data, or export on a broker that has all partitions"
        )
    return [found[index] for index in range(wanted)]


def _verified(path: Path) -> VerifyReport:
    report = verify(OsFiles(), str(path))
    if not report.is_sound:
        first = next(finding for finding in report.findings if finding.severity == "error")
        raise UserError(f"{path} is damaged: {first.message}; `braidlog log verify` tells more")
    leftovers = [name for name in os.listdir(path) if name.endswith(SWAP_SUFFIX)]
    if leftovers:
        raise UserError(
            f"{path} has {leftovers[0]}, of a compaction that was cut short: start and stop its broker once"
        )
    _refuse_open_transactions(path, report)
    return report


def _refuse_open_transactions(path: Path, report: VerifyReport) -> None:
    """Whoever could end one is not in the other cluster."""
    offsets = [offset for offset in map(snapshot_offset, os.listdir(path)) if offset is not None]
    newest = max((offset for offset in offsets if offset <= report.end_offset), default=None)
    if newest is None:
        return
    snapshot = path / f"{newest:020d}.snapshot"
    for entry in decode_snapshot(snapshot.read_bytes(), str(snapshot)):
        if entry.txn_first_offset >= 0:
            raise UserError(
                f"{path.name} has an open transaction of producer {entry.producer_id}, from offset "
                f"{entry.txn_first_offset} on: start the broker, end it (`braidlog transactions abort`), and stop"
            )


def _copy_partition(
    topic: str, index: int, path: Path, report: VerifyReport, archive: Path, facts: TopicFacts
) -> ArchivedPartition:
    target = archive / f"{topic}-{index}"
    target.mkdir()
    files: list[ArchivedFile] = []
    for name in sorted(os.listdir(path)):
        if is_archived(name):
            size, digest = copied(path / name, target / name)
            files.append(ArchivedFile(name, size, digest))
    sync_directory(target)
    partition = TopicPartition(topic, index)
    data = str(path.parent)
    start = max(report.start_offset, OffsetCheckpointFile(OsFiles(), data, START_OFFSETS).read().get(partition, 0))
    high_watermark = OffsetCheckpointFile(OsFiles(), data, HIGH_WATERMARKS).read().get(partition, 0)
    return ArchivedPartition(
        index,
        min(start, report.end_offset),
        report.end_offset,
        min(max(high_watermark, start), report.end_offset),
        max(facts.leader_epochs.get(index, -1), last_epoch(path)),
        report.max_producer_id,
        tuple(files),
    )


def last_epoch(path: Path) -> int:
    """The newest leader epoch that the log has records of; -1 without any."""
    file = path / CHECKPOINT_NAME
    if not file.exists():
        return -1
    try:
        return max((epoch for epoch, _ in decode_epochs(file.read_bytes(), str(file))), default=-1)
    except CorruptLogError as problem:
        raise UserError(str(problem)) from None
