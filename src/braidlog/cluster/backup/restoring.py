"""Puts a dump back, into the files of an embedded store or into ZooKeeper; nothing changes before it was checked.

    embedded     one snapshot takes the place of all files: as a whole or not at all
    ZooKeeper    as many transactions as it takes, /cluster/id in the last one; a broker with data of the cluster does
                 not start without that node. What a failed try has made is removed again.

Either way the tree is read back afterwards and compared with the dump.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.backup.dump_contents import is_notification
from braidlog.cluster.backup.dump_file import Checked, DumpedNode, TreeDigest, check_dump, read_dump
from braidlog.cluster.backup.tree_walk import WalkedNode, walk_store, walk_tree
from braidlog.cluster.journal import CorruptStoreError
from braidlog.cluster.journal_files import OsJournalFiles
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.recovery import recover, replace_by
from braidlog.cluster.store import (
    CoordinationStore,
    Create,
    Delete,
    NoNodeError,
    Operation,
    SessionExpiredError,
    SetData,
    StoreConnectionError,
    StoreError,
    UnknownOutcomeError,
    request_bytes,
)
from braidlog.cluster.tree import ZnodeTree
from braidlog.core.errors import BraidlogError, FatalError, UserError

_TOPIC_DEPTH: Final = 3


class Restored(NamedTuple):
    checked: Checked
    # 1 where all came to be at once.
    transactions: int
    # Nodes that made room.
    removed: int = 0


# Embedded


def check_for_embedded(dump: Path) -> Checked:
    """Raises UserError also where a single broker could not have all partitions."""
    owners: dict[tuple[int, ...], str] = {}

    def each(node: DumpedNode) -> None:
        names = node.path[1:].split("/")
        if len(names) != _TOPIC_DEPTH or not node.path.startswith(f"{paths.TOPICS}/"):
            return
        try:
            topic = records.decode_topic(node.path, node.data)
        except BadRecordError as problem:
            raise UserError(str(problem)) from None
        for replicas in topic.partitions:
            owners.setdefault(replicas, names[-1])
            if len(replicas) != 1 or len(owners) > 1:
                brokers = sorted({*replicas, *next(iter(owners))})
                raise UserError(
                    f"{dump}: topic {names[-1]} has replicas on brokers {brokers}, and an embedded store has one "
                    "broker; move all partitions to one broker first (replication factor 1)"
                )

    with dump.open("rb") as file:
        return check_dump(file, str(dump), each)


def restore_embedded(dump: Path, directory: str, *, replace: bool) -> Restored:
    """For a directory that no broker uses."""
    checked = check_for_embedded(dump)
    try:
        files = OsJournalFiles(directory)
    except BlockingIOError as problem:
        raise UserError(str(problem)) from problem
    try:
        before = recover(files).tree
        removed = sum(1 for _ in walk_tree(before))
        if removed and not replace:
            raise UserError(
                f"{directory} has a coordination store with {removed} nodes: --replace removes them; take a dump first"
            )
        tree = ZnodeTree()
        tree.zxid = before.zxid
        with dump.open("rb") as file:
            for node in read_dump(file, str(dump)):
                tree.transact(_operations(node), tree.zxid + 1, time.time_ns() // 1_000_000, 0)
        replace_by(files, tree)
        _compare(walk_tree(recover(files).tree), checked)
    except CorruptStoreError as problem:
        raise UserError(f"{problem}; or move the braidlog-store files of {directory} away") from problem
    finally:
        files.close()
    return Restored(checked, 1, removed)


def _compare(walked: Iterable[WalkedNode], checked: Checked) -> None:
    digest = TreeDigest()
    for node in walked:
        digest.add(node.path, node.data)
    _require_same(digest, checked)


def _require_same(digest: TreeDigest, checked: Checked) -> None:
    if digest.text() != checked.digest:
        raise FatalError("the tree is not what the dump says, although it was written; somebody else writes to it")


# Any store


async def restore_store(store: CoordinationStore, dump: Path, *, replace: bool) -> Restored:
    """For a cluster of which no broker runs."""

    def each(node: DumpedNode) -> None:
        size = request_bytes(_operations(node))
        if size > store.max_request_bytes:
            raise UserError(f"{dump}: {node.path} takes {size} bytes, and ZooKeeper {store.max_request_bytes}")

    with dump.open("rb") as file:
        checked = check_dump(file, str(dump), each)
    await store.sync()
    await _require_no_brokers(store)
    # Their names alone; deepest last.
    present = [node.path async for node in walk_store(store)]
    if present and not replace:
        raise UserError(f"the path of ZooKeeper has {len(present)} nodes: --replace removes them; take a dump first")
    await _remove(store, present)
    made: list[str] = []
    transactions = 0
    try:
        with dump.open("rb") as file:
            for batch in _batches(read_dump(file, str(dump)), store.max_request_bytes):
                made += [each.path for each in batch if isinstance(each, Create)]
                await apply_whole(store, batch)
                transactions += 1
        digest = TreeDigest()
        async for node in walk_store(store):
            if not node.is_ephemeral and not is_notification(node.path):
                digest.add(node.path, node.data)
        _require_same(digest, checked)
    except (StoreError, StoreConnectionError, SessionExpiredError) as problem:
        raise await _taken_back(store, made, problem) from problem
    return Restored(checked, transactions, len(present))


async def _require_no_brokers(store: CoordinationStore) -> None:
    try:
        brokers = await store.children(paths.BROKER_IDS)
    except NoNodeError:
        return
    if brokers:
        raise UserError(
            f"brokers {', '.join(brokers)} are registered: stop them, and wait for their sessions to end, before the "
            "tree below them is put back"
        )


async def _remove(store: CoordinationStore, present: Sequence[str]) -> None:
    """Children first; the cluster's id before all, so that nobody takes what is left for a cluster."""
    rest = [path for path in reversed(present) if path != paths.CLUSTER_ID]
    first = [paths.CLUSTER_ID] if paths.CLUSTER_ID in present else []
    for batch in _cut(([Delete(path)] for path in (*first, *rest)), store.max_request_bytes):
        await apply_whole(store, batch)


def _operations(node: DumpedNode) -> list[Operation]:
    create: list[Operation] = [Create(node.path, node.data)]
    return create + [SetData(node.path, node.data) for _ in range(node.version)]


def _batches(nodes: Iterable[DumpedNode], limit: int) -> Iterator[list[Operation]]:
    """The cluster's id comes last, whatever its place."""
    last: list[Operation] = []

    def others() -> Iterator[list[Operation]]:
        for node in nodes:
            if node.path == paths.CLUSTER_ID:
                last.extend(_operations(node))
            else:
                yield _operations(node)

    waiting: list[Operation] = []
    for batch in _cut(others(), limit):
        if waiting:
            yield waiting
        waiting = batch
    if request_bytes(waiting) + request_bytes(last) > limit:
        yield waiting
        waiting = []
    if waiting or last:
        yield waiting + last


def _cut(units: Iterable[list[Operation]], limit: int) -> Iterator[list[Operation]]:
    """Units stay whole."""
    batch: list[Operation] = []
    size = 0
    for unit in units:
        more = request_bytes(unit)
        if batch and size + more > limit:
            yield batch
            batch, size = [], 0
        batch += unit
        size += more
    if batch:
        yield batch


async def apply_whole(store: CoordinationStore, batch: Sequence[Operation]) -> None:
    """As a whole, once; where the answer was lost, its first operation shows what became of it."""
    while True:
        try:
            await store.multi(batch)
        except UnknownOutcomeError:
            await store.sync()
            is_there = await store.exists(batch[0].path) is not None
            if is_there != isinstance(batch[0], Create):
                continue
        return


async def _taken_back(store: CoordinationStore, made: Sequence[str], problem: BraidlogError) -> BraidlogError:
    try:
        await store.sync()
        there = [path for path, node in zip(made, await store.get_many(made), strict=True) if node is not None]
        await _remove(store, there)
    except (StoreError, StoreConnectionError, SessionExpiredError) as again:
        return FatalError(
            f"the tree is incomplete: {problem}; and what was made could not be removed: {again}. Restore again with "
            "--replace once ZooKeeper answers"
        )
    return UserError(f"nothing was restored, and what had been made was removed again: {problem}")
