"""Reads the embedded store back from its files, and replaces the journal by a snapshot.

    open    newest snapshot, then every journal's transactions after its zxid; the last journal's torn tail is cut off
    look    the same reading, which leaves the torn tail where it is
    fold    the same reading, written as a new snapshot; only then do the files that it replaces go

Both see files alone, never the live tree, so folding can run in the writer thread while the loop changes the tree.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from braidlog.cluster.journal import (
    CorruptStoreError,
    decode_snapshot,
    encode_snapshot,
    read_transactions,
    valid_length,
)
from braidlog.cluster.journal_files import JournalFiles, ReadableFiles
from braidlog.cluster.store import StoreError
from braidlog.cluster.tree import ZnodeTree
from braidlog.core.errors import is_disk_full

SNAPSHOT: Final = "snapshot-"
JOURNAL: Final = "journal-"
_TORN: Final = ".torn"

_log = logging.getLogger("braidlog.cluster.store")


class Recovered(NamedTuple):
    tree: ZnodeTree
    journal: str  # the file to append to
    journal_size: int
    snapshot_size: int


def journal_name(first_zxid: int) -> str:
    """Names sort as their zxids do."""
    return f"{JOURNAL}{first_zxid:020d}"


def snapshot_name(zxid: int) -> str:
    return f"{SNAPSHOT}{zxid:020d}"


def recover(files: JournalFiles) -> Recovered:
    """Blocking. Raises CorruptStoreError rather than start with less than was acknowledged."""
    with _uncollected():
        return _recover(files, files)


def look(files: ReadableFiles) -> ZnodeTree:
    """Blocking. What a broker would find that started now; raises as `recover` does."""
    with _uncollected():
        return _recover(files, None).tree


@contextmanager
def _uncollected() -> Iterator[None]:
    """Tens of thousands of nodes that all stay: collecting meanwhile doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _recover(files: ReadableFiles, mended: JournalFiles | None) -> Recovered:
    names = files.names()
    snapshots = [name for name in names if name.startswith(SNAPSHOT)]
    journals = [name for name in names if name.startswith(JOURNAL) and not name.endswith(_TORN)]
    tree = ZnodeTree()
    snapshot_size = 0
    if snapshots:
        content = files.read(snapshots[-1])
        snapshot_size = len(content)
        tree = decode_snapshot(snapshots[-1], content)
    journal, size = journal_name(tree.zxid + 1), 0
    for name in journals:
        content = files.read(name)
        end = valid_length(name, content)
        if end < len(content):
            if name != journals[-1]:
                raise CorruptStoreError(f"{name}: damaged at byte {end}; restore the file from a backup")
            if mended is not None:
                _cut_tail(mended, name, content, end)
        journal, size = name, end
        try:
            for transaction in read_transactions(content, end):
                if transaction.zxid > tree.zxid:
                    tree.replay(transaction)
        except (StoreError, AssertionError, KeyError) as problem:
            raise CorruptStoreError(
                f"{name}: does not continue {snapshots[-1] if snapshots else 'an empty store'} ({problem}); "
                f"files of the store are missing: restore the whole directory from a backup"
            ) from problem
    return Recovered(tree, journal, size, snapshot_size)


def _cut_tail(files: JournalFiles, name: str, content: bytes, end: int) -> None:
    _log.warning(
        "%s ends in %d bytes of a change that was never acknowledged; they are kept in %s and cut off",
        name, len(content) - end, name + _TORN,
    )  # fmt: skip
    try:
        files.write_whole(name + _TORN, content[end:])
    except OSError as problem:
        if not is_disk_full(problem):
            raise
        _log.warning("%s was not written: %s", name + _TORN, problem)
    files.truncate(name, end)


def take_snapshot(files: JournalFiles) -> Recovered:
    """Blocking. Replace snapshot and journals by one snapshot of what they say."""
    return replace_by(files, _recover(files, files).tree)


def replace_by(files: JournalFiles, tree: ZnodeTree) -> Recovered:
    """Blocking. Have the files say this alone; its zxid is none of an earlier state of theirs."""
    encoded = encode_snapshot(tree)
    name = snapshot_name(tree.zxid)
    old = [file for file in files.names() if file.startswith((SNAPSHOT, JOURNAL)) and not file.endswith(_TORN)]
    files.write_whole(name, encoded)
    for file in old:
        if file != name:
            # What stays is older than the snapshot, and so read past.
            with suppress(OSError):
                files.remove(file)
    return Recovered(tree, journal_name(tree.zxid + 1), 0, len(encoded))
