"""The embedded store's two file formats: the journal that changes are appended to, the snapshot that replaces it.

The version is the end of the magic, which begins every frame and a snapshot. A later version keeps these heads, but its
crc32 covers what comes before it in the head, too: so it is told from a torn tail, and refused before anything is cut.

`journal-<first zxid>`: frames, one for each group commit, all numbers big-endian. A frame is written only after the
one before it is durable, so a damaged frame is a torn tail if nothing sound follows it, else corruption.

    +--------------+----------+---------+------------------------------------------+
    | magic "BLj1" | length 4 | crc32 4 | transactions, `length` bytes             |
    +--------------+----------+---------+------------------------------------------+
    transaction:  zxid 8 | time ms 8 | number of changes 4 | changes
    change:       kind 1 | path size 2 | owner 8 | data size 4 | path (UTF-8) | data

`snapshot-<last zxid>`: every node once, each parent before its children, stored column by column because unpacking a
column is one call, while unpacking a node at a time takes most of a start-up.

    +------------------+---------+----------------+--------+--------------+
    | magic "BLsnap01" | crc32 4 | number n of    | zxid 8 | names size 4 |   header; the crc covers all that follows it
    |                  |         | nodes 4        |        |              |
    +------------------+---------+----------------+--------+--------------+
    | czxid n*8 | mzxid n*8 | pzxid n*8 | ctime n*8 | mtime n*8 | owner n*8 |
    | version n*4 | children ever created n*4 | index of parent n*4 | data size n*4 |
    | names (UTF-8, between them a zero byte) | data of all nodes             |
    +-------------------------------------------------------------------------+
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, pack, unpack_from
from sys import intern
from typing import Final
from zlib import crc32

from braidlog.cluster.store import PERSISTENT
from braidlog.cluster.tree import Change, Transaction, Znode, ZnodeTree
from braidlog.core.errors import BraidlogError, NewerFormatError

FRAME_MAGIC: Final = b"BLj1"
SNAPSHOT_MAGIC: Final = b"BLsnap01"
# What every version's magic begins with.
_FRAME_KIND: Final = b"BLj"
_SNAPSHOT_KIND: Final = b"BLsnap"

_FRAME: Final = Struct(">4sII")
_TRANSACTION: Final = Struct(">qqI")
_CHANGE: Final = Struct(">BHqI")
_SNAPSHOT: Final = Struct(">8sIIqI")
_SNAPSHOT_CRC_FROM: Final = 12


class CorruptStoreError(BraidlogError):
    """A store file holds what was never written; the message names the file and the place."""


def encode_transaction(transaction: Transaction) -> bytes:
    parts = [_TRANSACTION.pack(transaction.zxid, transaction.time_ms, len(transaction.changes))]
    for kind, path, data, owner in transaction.changes:
        encoded = path.encode()
        parts.append(_CHANGE.pack(kind, len(encoded), owner, len(data)))
        parts.append(encoded)
        parts.append(data)
    return b"".join(parts)


def encode_frame(transactions: list[bytes]) -> bytes:
    body = b"".join(transactions)
    return _FRAME.pack(FRAME_MAGIC, len(body), crc32(body)) + body


def _frame_end(journal: bytes, position: int) -> int:
    """Where the valid frame at `position` ends, or -1 if there is none."""
    if len(journal) - position < _FRAME.size:
        return -1
    magic, length, checksum = _FRAME.unpack_from(journal, position)
    start = position + _FRAME.size
    if magic != FRAME_MAGIC or len(journal) - start < length:
        return -1
    return start + length if crc32(journal[start : start + length]) == checksum else -1


def valid_length(name: str, journal: bytes) -> int:
    """The length up to which the journal is sound; what follows is a torn tail. Raises if a later frame is sound."""
    position = 0
    while position < len(journal):
        end = _frame_end(journal, position)
        if end == -1:
            break
        position = end
    later = journal.find(FRAME_MAGIC, position + 1)
    while later != -1:
        if _frame_end(journal, later) != -1:
            raise CorruptStoreError(
                f"{name}: damaged at byte {position}, though sound changes follow at byte {later}. Restore the file "
                f"from a backup; or keep a copy and cut it at byte {position} to go on without the later changes"
            )
        later = journal.find(FRAME_MAGIC, later + 1)
    _refuse_newer_frame(name, journal, position)
    return position


def _refuse_newer_frame(name: str, journal: bytes, position: int) -> None:
    if len(journal) - position < _FRAME.size:
        return
    magic, length, checksum = _FRAME.unpack_from(journal, position)
    body = journal[position + _FRAME.size : position + _FRAME.size + length]
    if magic.startswith(_FRAME_KIND) and checksum == crc32(body, crc32(journal[position : position + 8])):
        raise NewerFormatError(name, _version(magic, _FRAME_KIND), _version(FRAME_MAGIC, _FRAME_KIND))


def _refuse_newer_snapshot(name: str, snapshot: bytes) -> None:
    magic, checksum = snapshot[:8], snapshot[8:_SNAPSHOT_CRC_FROM]
    if magic.startswith(_SNAPSHOT_KIND) and checksum == pack(">I", crc32(snapshot[_SNAPSHOT_CRC_FROM:], crc32(magic))):
        raise NewerFormatError(name, _version(magic, _SNAPSHOT_KIND), _version(SNAPSHOT_MAGIC, _SNAPSHOT_KIND))


def _version(magic: bytes, kind: bytes) -> str:
    return magic.removeprefix(kind).decode("ascii", "replace").lstrip("0")


def read_transactions(journal: bytes, end: int) -> Iterator[Transaction]:
    """The transactions of the frames before `end`, which `valid_length` found sound."""
    position = 0
    while position < end:
        _, length, _ = _FRAME.unpack_from(journal, position)
        position += _FRAME.size
        stop = position + length
        while position < stop:
            zxid, time_ms, count = _TRANSACTION.unpack_from(journal, position)
            position += _TRANSACTION.size
            changes: list[Change] = []
            for _ in range(count):
                kind, path_size, owner, data_size = _CHANGE.unpack_from(journal, position)
                position += _CHANGE.size
                middle = position + path_size
                changes.append(
                    Change(kind, journal[position:middle].decode(), journal[middle : middle + data_size], owner)
                )
                position = middle + data_size
            yield Transaction(zxid, time_ms, tuple(changes))


def encode_snapshot(tree: ZnodeTree) -> bytes:
    nodes = [tree.root]
    names = [""]
    parents = [0]
    for index, node in enumerate(nodes):  # grows while it is walked: breadth first
        if node.children:
            names.extend(node.children)
            nodes.extend(node.children.values())
            parents.extend([index] * len(node.children))
    count = len(nodes)
    name_block = "\0".join(names).encode()
    body = b"".join(
        (
            pack(f">{count}q", *[node.czxid for node in nodes]),
            pack(f">{count}q", *[node.mzxid for node in nodes]),
            pack(f">{count}q", *[node.pzxid for node in nodes]),
            pack(f">{count}q", *[node.ctime_ms for node in nodes]),
            pack(f">{count}q", *[node.mtime_ms for node in nodes]),
            pack(f">{count}q", *[node.owner for node in nodes]),
            pack(f">{count}i", *[node.version for node in nodes]),
            pack(f">{count}i", *[node.created_children for node in nodes]),
            pack(f">{count}i", *parents),
            pack(f">{count}i", *[len(node.data) for node in nodes]),
            name_block,
            *[node.data for node in nodes],
        )
    )
    rest = pack(">IqI", count, tree.zxid, len(name_block))
    return SNAPSHOT_MAGIC + pack(">I", crc32(body, crc32(rest))) + rest + body


def decode_snapshot(name: str, snapshot: bytes) -> ZnodeTree:
    _refuse_newer_snapshot(name, snapshot)
    if len(snapshot) < _SNAPSHOT.size or not snapshot.startswith(SNAPSHOT_MAGIC):
        raise CorruptStoreError(f"{name}: not a snapshot of the embedded store; restore it from a backup")
    _, checksum, count, zxid, names_size = _SNAPSHOT.unpack_from(snapshot, 0)
    if crc32(memoryview(snapshot)[_SNAPSHOT_CRC_FROM:]) != checksum:
        raise CorruptStoreError(f"{name}: the checksum does not match its contents; restore it from a backup")
    longs = [unpack_from(f">{count}q", snapshot, _SNAPSHOT.size + column * 8 * count) for column in range(6)]
    after_longs = _SNAPSHOT.size + 48 * count
    ints = [unpack_from(f">{count}i", snapshot, after_longs + column * 4 * count) for column in range(4)]
    names_at = after_longs + 16 * count
    names = snapshot[names_at : names_at + names_size].decode().split("\0")
    position = names_at + names_size

    tree = ZnodeTree()
    tree.zxid = zxid
    nodes: list[Znode] = []
    paths: dict[int, str] = {}
    rows = zip(names, *longs, *ints, strict=True)
    for name_, czxid, mzxid, pzxid, ctime_ms, mtime_ms, owner, version, created, parent, size in rows:
        # Equal numbers become one object: three zxids and two times a node would be a third of the tree's memory.
        node = Znode(
            snapshot[position : position + size],
            czxid,
            czxid if mzxid == czxid else mzxid,
            czxid if pzxid == czxid else pzxid,
            ctime_ms,
            ctime_ms if mtime_ms == ctime_ms else mtime_ms,
            owner,
            version,
            created,
        )
        position += size
        if not nodes:
            tree.root = node
        else:
            above = nodes[parent]
            if above.children is None:
                above.children = {}
            above.children[intern(name_)] = node
            if owner != PERSISTENT:
                path = "/" + name_
                while parent:
                    path = f"/{names[parent]}{path}"
                    parent = ints[2][parent]
                paths[len(nodes)] = path
        nodes.append(node)
    for index, path in paths.items():
        tree.ephemerals.setdefault(nodes[index].owner, {})[path] = None
    return tree
