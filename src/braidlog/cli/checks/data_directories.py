"""Data directories: whose they are, how the last broker left them, whether there is room."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from braidlog.cli.checks.finding import Finding, listing, ok, problem, warning
from braidlog.cli.checks.processes import command_of, lock_holder
from braidlog.cluster import paths, records
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.journal_files import StoredFiles
from braidlog.cluster.recovery import look
from braidlog.core.errors import BraidlogError, CorruptLogError, UserError
from braidlog.storage.dirs.directory_lock import LOCK_NAME
from braidlog.storage.dirs.directory_names import DirectoryKind, parse_directory_name
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN
from braidlog.storage.dirs.meta_properties import FILE_NAME, MetaProperties, decode_meta_properties
from braidlog.storage.log.lost_tails import TAIL_SUFFIX

_GIGABYTE: Final = 1 << 30
# Below either a broker soon refuses records; below the lower pair it may do so any moment.
_LOW_SHARE: Final = 0.10
_LOW_BYTES: Final = 2 * _GIGABYTE
_NO_SHARE: Final = 0.02
_NO_BYTES: Final = 256 << 20
_READ_ONLY_MOUNT: Final = 1
# Clocks of machines that agree differ by less.
_CLOCK_SLACK_S: Final = 60.0


@dataclass
class DataDirectory:
    """What lies in one entry of log.dirs."""

    path: str
    partitions: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    lost_tails: list[str] = field(default_factory=list)
    properties: MetaProperties | None = None
    # Why meta.properties cannot be read; none where it is sound or missing.
    bad_properties: str | None = None
    stopped_cleanly: bool = False
    # The running broker, if any.
    holder: int | None = None
    newest_change: float = 0.0


def survey(path: str) -> DataDirectory:
    """Raises OSError where the directory cannot be read."""
    found = DataDirectory(path)
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        parsed = parse_directory_name(entry.name)
        if parsed is None or not entry.is_dir():
            continue
        if parsed.kind is DirectoryKind.STRAY:
            found.strays.append(entry.name)
        elif parsed.kind is DirectoryKind.CURRENT:
            found.partitions.append(entry.name)
            for file in os.scandir(entry.path):
                found.newest_change = max(found.newest_change, file.stat().st_mtime)
                if file.name.endswith(TAIL_SUFFIX):
                    found.lost_tails.append(file.path)
    properties = os.path.join(path, FILE_NAME)
    if os.path.exists(properties):
        try:
            with open(properties, encoding="utf-8") as text:
                found.properties = decode_meta_properties(text.read(), properties)
        except (CorruptLogError, UserError, UnicodeDecodeError) as reason:
            found.bad_properties = str(reason)
    found.stopped_cleanly = os.path.exists(os.path.join(path, CLEAN_SHUTDOWN))
    found.holder = lock_holder(os.path.join(path, LOCK_NAME))
    return found


def check_directory(path: str) -> tuple[DataDirectory | None, list[Finding]]:
    """One directory by itself; none instead of its facts where there is nothing to read."""
    name = "data directory"
    if not os.path.exists(path):
        parent = os.path.dirname(os.path.abspath(path))
        while not os.path.exists(parent):
            parent = os.path.dirname(parent)
        if not os.access(parent, os.W_OK):
            return None, [problem(name, f"{path} does not exist and {parent} is not writable", f"make {path} writable")]
        return None, [ok(name, f"{path} does not exist yet; the first start makes it")]
    if not os.path.isdir(path):
        return None, [problem(name, f"{path} is not a directory", "point --data or log.dirs at a directory")]
    try:
        found = survey(path)
    except OSError as reason:
        return None, [
            problem(name, f"{path} cannot be read: {reason.strerror or reason}", "mend the disk or its permissions")
        ]
    return found, [
        check_writable(path),
        check_disk(path),
        check_use(found),
        check_last_stop(found),
        *check_leftovers(found),
    ]


def check_writable(path: str) -> Finding:
    name = "data directory"
    if os.statvfs(path).f_flag & _READ_ONLY_MOUNT:
        return problem(name, f"{path} lies on a file system that is mounted read-only", "mount it writable")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return problem(name, f"{path} is not writable for this user", f"run: chown -R {os.getuid()} {path}")
    return ok(name, f"{path} is writable")


def check_disk(path: str) -> Finding:
    usage = os.statvfs(path)
    total, free = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
    return judge_disk(path, total, free, usage.f_files, usage.f_favail)


def judge_disk(path: str, total: int, free: int, inodes: int = 0, free_inodes: int = 0) -> Finding:
    name = "disk"
    message = f"{path} has {free / _GIGABYTE:.1f} of {total / _GIGABYTE:.1f} GiB free"
    advice = "free space, or lower retention.ms or retention.bytes of large topics with `braidlog configs alter`"
    if total <= 0:
        return ok(name, f"{path}: its file system does not tell how full it is")
    if free < _NO_BYTES or free < total * _NO_SHARE:
        return problem(name, message, advice)
    if inodes and free_inodes < inodes * _NO_SHARE:
        return problem(name, f"{path} has {free_inodes} of {inodes} inodes left", "remove files that are not needed")
    if free < _LOW_BYTES or free < total * _LOW_SHARE:
        return warning(name, message, advice)
    return ok(name, message)


def check_use(found: DataDirectory) -> Finding:
    name = "in use"
    if found.holder is None:
        return ok(name, f"no broker has {found.path} open")
    return ok(name, f"{found.path} is open in {command_of(found.holder)}; a second broker would be refused")


def check_last_stop(found: DataDirectory) -> Finding:
    name = "last stop"
    if found.holder is not None:
        return ok(name, "a broker is running")
    if found.stopped_cleanly:
        return ok(name, f"{found.path} was left by a clean stop")
    if not found.partitions:
        return ok(name, f"{found.path} holds no partitions yet")
    return warning(
        name,
        f"{found.path} was not stopped cleanly",
        f"the next start checks its {len(found.partitions)} partitions by itself; stop brokers with SIGTERM",
    )


def check_leftovers(found: DataDirectory) -> list[Finding]:
    findings: list[Finding] = []
    if found.lost_tails:
        findings.append(
            warning(
                "lost records",
                f"a recovery cut bytes off that it could not read: {listing(found.lost_tails, 3)}",
                "see what they were with `braidlog log dump --records FILE`, then remove the files",
            )
        )
    if found.strays:
        findings.append(
            warning(
                "stray partitions",
                f"{found.path} holds partitions that the cluster does not know: {listing(found.strays, 3)}",
                "remove the directories once their records are no longer needed",
            )
        )
    return findings


def check_identity(
    found: Sequence[DataDirectory], broker_id: int, store_cluster: str | None, cluster_in_reach: str | None
) -> Finding:
    """Whether all directories, the store and, if asked, the cluster behind --bootstrap are the same cluster's."""
    name = "identity"
    for each in found:
        if each.bad_properties is not None:
            advice = "copy meta.properties from another data directory of this broker, or restore it from a backup"
            return problem(name, each.bad_properties, advice)
    known = [(each.path, each.properties) for each in found if each.properties is not None]
    clusters = {properties.cluster_id: path for path, properties in known if properties.cluster_id is not None}
    nodes = {properties.node_id: path for path, properties in known if properties.node_id is not None}
    if store_cluster is not None:
        clusters.setdefault(store_cluster, "the coordination store")
    advice = "point log.dirs at the data of one cluster and broker, or move the foreign directory away"
    if len(clusters) > 1:
        message = ", ".join(f"{place} belongs to cluster {cluster}" for cluster, place in clusters.items())
        return problem(name, message, advice)
    if len(nodes) > 1:
        message = ", ".join(f"{place} belongs to broker {node}" for node, place in nodes.items())
        return problem(name, message, advice)
    cluster = next(iter(clusters), None)
    node = next(iter(nodes), None)
    if node is not None and broker_id >= 0 and node != broker_id:
        return problem(
            name,
            f"{nodes[node]} belongs to broker {node}, but the settings say broker.id={broker_id}",
            f"set broker.id={node}, or give broker {broker_id} its own log.dirs",
        )
    if cluster is not None and cluster_in_reach and cluster_in_reach != cluster:
        return problem(
            name,
            f"the data belongs to cluster {cluster}, but the broker at --bootstrap to cluster {cluster_in_reach}",
            "give the --bootstrap of this data's cluster, or look at the other data directory",
        )
    if cluster is None:
        return ok(name, "the data belongs to no cluster yet")
    return ok(name, f"the data belongs to cluster {cluster}, broker {'any' if node is None else node}")


def check_clock(found: Sequence[DataDirectory], now: float | None = None) -> Finding:
    """Files from the future say that a clock went back; retention and timestamps follow the clock."""
    name = "clock"
    present = time.time() if now is None else now
    newest = max((each.newest_change for each in found), default=0.0)
    if newest > present + _CLOCK_SLACK_S:
        return warning(
            name,
            f"files were written {newest - present:.0f} s in the future of this machine's clock",
            "set the clock (chrony or ntpd); until then records get wrong times and are kept too long or too short",
        )
    return ok(name, f"it is {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(present))}")


def stored_cluster_id(directory: str) -> str | None:
    """None where there is no store; raises BraidlogError where it cannot be read."""
    if not os.path.isdir(directory):
        return None
    files = StoredFiles(directory)
    if not files.names():
        return None
    try:
        node = look(files).find(paths.CLUSTER_ID)
        return None if node is None else records.decode_cluster_id(paths.CLUSTER_ID, node.data)
    except (CorruptStoreError, UserError):
        raise
    except (BraidlogError, ValueError) as problem:
        raise CorruptStoreError(f"{directory}: {problem}") from problem
