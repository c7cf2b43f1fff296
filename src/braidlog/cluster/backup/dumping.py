"""Writes a dump of a coordination tree into a file that is there as a whole or not at all.

A store on ZooKeeper is read node by node while brokers may change it. It is read twice: where every node has the same
zxids again, the first reading is what the tree was at the moment between the two.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from braidlog.cluster.backup.described_cluster import DescribedCluster, check_described, described_nodes
from braidlog.cluster.backup.dump_contents import Contents, LeftOut, is_notification
from braidlog.cluster.backup.dump_file import DumpWriter, Header
from braidlog.cluster.backup.tree_walk import WalkedNode, walk_store, walk_tree
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.journal_files import StoredFiles
from braidlog.cluster.recovery import look
from braidlog.cluster.store import CoordinationStore
from braidlog.cluster.tree import ZnodeTree
from braidlog.core.errors import UserError

EMBEDDED: Final = "embedded"
ZOOKEEPER: Final = "zookeeper"
# What brokers told, of a cluster whose store cannot be read.
BROKERS: Final = "brokers"
# A tree that changes all the time is dumped all the same, and the dump says so.
_TRIES: Final = 3
_FOLDING_TRIES: Final = 20
_FOLDING_S: Final = 0.05


class Dumped(NamedTuple):
    contents: Contents
    left_out: LeftOut
    point_in_time: bool


def stored_tree(directory: str, sleep: Callable[[float], None] = time.sleep) -> ZnodeTree:
    """What the embedded store's files in a directory say, also while a broker is using them.

    The broker may be replacing its journal by a snapshot right now, or taking back an append: then it is read again.
    """
    if not os.path.isdir(directory):
        raise UserError(f"{directory} is no directory; name the data directory that has the braidlog-store files")
    files = StoredFiles(directory)
    if not files.names():
        raise UserError(
            f"{directory} has no coordination store: name the first of log.dirs, or braidlog.store.dir where that is "
            "set; a broker with zookeeper.connect keeps nothing there"
        )
    for _ in range(_FOLDING_TRIES - 1):
        try:
            return look(files)
        except (FileNotFoundError, CorruptStoreError):
            sleep(_FOLDING_S)
    try:
        return look(files)
    except CorruptStoreError as problem:
        raise UserError(str(problem)) from problem


def dump_tree(tree: ZnodeTree, path: Path, *, secrets: bool, overwrite: bool = False) -> Dumped:
    with _new_file(path, overwrite) as file:
        writer = DumpWriter(file, _header(EMBEDDED, secrets))
        for node in walk_tree(tree):
            writer.add(node.path, node.data, node.version, is_ephemeral=node.is_ephemeral)
        writer.end(point_in_time=True)
    return Dumped(writer.contents, writer.left_out, True)


async def dump_store(store: CoordinationStore, path: Path, *, secrets: bool, overwrite: bool = False) -> Dumped:
    with _new_file(path, overwrite) as file:
        for _ in range(_TRIES):
            file.seek(0)
            file.truncate()
            writer = DumpWriter(file, _header(ZOOKEEPER, secrets))
            first = _Zxids()
            async for node in walk_store(store):
                first.add(node)
                writer.add(node.path, node.data, node.version, is_ephemeral=node.is_ephemeral)
            second = _Zxids()
            async for node in walk_store(store):
                second.add(node)
            point_in_time = first.digest() == second.digest()
            if point_in_time:
                break
        if not writer.contents.nodes:
            raise UserError("there is no cluster at that path of ZooKeeper: nothing was written")
        writer.end(point_in_time=point_in_time)
    return Dumped(writer.contents, writer.left_out, point_in_time)


def dump_described(cluster: DescribedCluster, secrets: int, path: Path, *, overwrite: bool = False) -> Dumped:
    """Of a cluster that has no store; so many `secrets` its brokers do not tell."""
    check_described(cluster)
    with _new_file(path, overwrite) as file:
        writer = DumpWriter(file, _header(BROKERS, False))
        writer.left_out.secrets = secrets
        for node_path, data in described_nodes(cluster):
            writer.add(node_path, data)
        writer.end(point_in_time=True)
    return Dumped(writer.contents, writer.left_out, True)


class _Zxids:
    """Which nodes there are, and when each was written last; of those that a dump holds."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, node: WalkedNode) -> None:
        if not node.is_ephemeral and not is_notification(node.path):
            self._sha.update(f"{node.path}\0{node.czxid}\0{node.mzxid}\n".encode())

    def digest(self) -> bytes:
        return self._sha.digest()


def _header(store: str, secrets: bool) -> Header:
    return Header(store, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), secrets)


@contextmanager
def _new_file(path: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """For this user's eyes alone, since a tree tells who may do what; takes its name once all of it is on disk."""
    if path.is_dir() or (path.exists() and not overwrite):
        raise UserError(f"{path} exists: name another file" + ("" if path.is_dir() else ", or add --overwrite"))
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror}") from problem
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
