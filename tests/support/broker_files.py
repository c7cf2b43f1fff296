"""What brokers of either make leave in their data directories and in ZooKeeper, and both have to understand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.peers.kafka import run_tool

from braidlog.storage.dirs.directory_names import DirectoryKind, parse_directory_name
from braidlog.storage.dirs.lost_replicas import FILE_NAME as LOST_REPLICAS
from braidlog.storage.dirs.meta_properties import FILE_NAME as META_PROPERTIES
from braidlog.storage.dirs.meta_properties import MetaProperties, decode_meta_properties
from braidlog.storage.dirs.offset_checkpoint_file import (
    CHECKPOINT_NAMES,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Offsets,
    decode_offsets,
)
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME as PARTITION_METADATA
from braidlog.storage.dirs.partition_metadata_file import decode_partition_metadata
from braidlog.storage.log.leader_epoch_file_cache import CHECKPOINT_NAME as LEADER_EPOCHS
from braidlog.storage.log.leader_epoch_file_cache import decode_epochs
from support.mixed_cluster import Znode

_CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
# Of a broker that was stopped cleanly. Kafka looks at no file that it does not know; a directory it would stumble over.
# Segments and logs that are no longer needed wait for `file.delete.delay.ms`, or the next start of either make.
_KNOWN: Final = {META_PROPERTIES, ".lock", _CLEAN_SHUTDOWN, LOST_REPLICAS, *CHECKPOINT_NAMES}
_IN_PARTITION: Final = re.compile(
    rf"\d{{20}}\.(log|index|timeindex|txnindex|snapshot)(\.deleted)?|{LEADER_EPOCHS}|{re.escape(PARTITION_METADATA)}"
)
_DUMPED: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
# What kafka-dump-log says of a file that it does not like.
_COMPLAINT: Final = re.compile(r"mismatch|out of order|corrupt|isvalid: false|exception|error", re.IGNORECASE)
# Nodes that say how things stand right now, or that a change has happened, and not what was agreed on.
_PASSING: Final = re.compile(
    r"/(controller|controller_epoch|brokers/seqid|brokers/ids/\d+|latest_producer_id_block)"
    r"|/brokers/topics/[^/]+/partitions/\d+/state"
    r"|/(config/changes|isr_change_notification|log_dir_event_notification|kafka-acl-changes|kafka-acl-extended-changes)/.+"
    r"|/admin/reassign_partitions"
)


def logs_of(data_dir: Path, kind: DirectoryKind = DirectoryKind.CURRENT) -> list[Path]:
    found = ((path, parse_directory_name(path.name)) for path in sorted(data_dir.iterdir()) if path.is_dir())
    return [path for path, name in found if name is not None and name.kind is kind]


def strange_files(data_dir: Path) -> list[str]:
    """Names that Kafka does not give, or does not leave behind when it stops."""
    logs = logs_of(data_dir)
    expected = {*logs, *logs_of(data_dir, DirectoryKind.DELETE), *(data_dir / name for name in _KNOWN)}
    found = [path for path in data_dir.iterdir() if path not in expected]
    found += [path for log in logs for path in log.iterdir() if not _IN_PARTITION.fullmatch(path.name)]
    return sorted(str(path.relative_to(data_dir)) for path in found)


def identity(data_dir: Path) -> MetaProperties:
    """Whose directory it is."""
    meta = data_dir / META_PROPERTIES
    return decode_meta_properties(meta.read_text(), str(meta))


def topic_ids(data_dir: Path) -> dict[str, bytes]:
    """Of which topics the logs in it are, by their partitions."""
    return {
        log.name: decode_partition_metadata((log / PARTITION_METADATA).read_text(), log.name)
        for log in logs_of(data_dir)
    }


def checkpoints(data_dir: Path) -> dict[str, Offsets]:
    return {
        name: decode_offsets((data_dir / name).read_text(), name)
        for name in CHECKPOINT_NAMES
        if (data_dir / name).exists()
    }


def unchecked_logs(data_dir: Path) -> list[str]:
    """Logs of which the checkpoints of a clean stop say nothing, or no mark of such a stop."""
    found = checkpoints(data_dir)
    missing = [] if (data_dir / _CLEAN_SHUTDOWN).exists() else [_CLEAN_SHUTDOWN]
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        told = {f"{each.topic}-{each.partition}" for each in found.get(name, {})}
        missing += [f"{name}: {log.name}" for log in logs_of(data_dir) if log.name not in told]
    return missing


def leader_epochs(data_dir: Path) -> dict[str, list[tuple[int, int]]]:
    """Epochs and their start offsets, by partition; those in which nothing was written are known to leaders alone."""
    found = {}
    ends = checkpoints(data_dir)[HIGH_WATERMARKS]
    by_name = {f"{each.topic}-{each.partition}": offset for each, offset in ends.items()}
    for log in logs_of(data_dir):
        path = log / LEADER_EPOCHS
        # Kafka makes it with the log, braidlog with the first epoch.
        entries = decode_epochs(path.read_bytes(), str(path)) if path.exists() and path.stat().st_size else []
        found[log.name] = [(epoch, start) for epoch, start in entries if start < by_name.get(log.name, 0)]
    return found


def complaints_of_dump_log(paths: Iterable[Path]) -> list[str]:
    """What Kafka's own tool finds wrong with these files."""
    files = ",".join(str(path) for path in paths)
    done = run_tool("kafka-dump-log", ["--files", files], timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Dumping ") == files.count(",") + 1
    return [line for line in (done.stdout + done.stderr).splitlines() if _COMPLAINT.search(line)]


def files_to_dump(data_dir: Path) -> Iterator[Path]:
    for log in logs_of(data_dir):
        yield from (path for path in sorted(log.iterdir()) if path.suffix in _DUMPED and path.stat().st_size)


def changed_nodes(before: Mapping[str, Znode], after: Mapping[str, Znode], but_for: Iterable[str] = ()) -> list[str]:
    """Nodes that are not as they were: their content, version, or who may touch them; `but_for` and below them."""
    left_out = tuple(but_for)
    return [
        f"{path}: {before.get(path)} before, {after.get(path)} after"
        for path in sorted({*before, *after})
        if not _PASSING.fullmatch(path)
        and not any(path == each or path.startswith(f"{each}/") for each in left_out)
        and before.get(path) != after.get(path)
    ]
