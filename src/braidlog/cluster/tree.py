"""The node tree of the embedded store: checks operations and applies them in memory, without any I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import intern
from typing import Final, NamedTuple

from braidlog.cluster.store import (
    ANY_VERSION,
    PERSISTENT,
    BadVersionError,
    Create,
    Delete,
    EventKind,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Outcome,
    SetData,
    Stat,
    StoreError,
    WatchEvent,
    check_path,
)

CREATE: Final = 1
SET: Final = 2
DELETE: Final = 3


class Change(NamedTuple):
    """An operation as it took effect: final path, no conditions. Replaying the changes rebuilds the tree."""

    kind: int
    path: str
    data: bytes = b""
    owner: int = PERSISTENT


class Transaction(NamedTuple):
    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


class Znode:
    """A node; `created_children` counts every child ever created: the next sequential number."""

    __slots__ = (
        "children", "created_children", "ctime_ms", "czxid", "data", "mtime_ms", "mzxid", "owner", "pzxid", "version",
    )  # fmt: skip

    def __init__(
        self,
        data: bytes,
        czxid: int,
        mzxid: int,
        pzxid: int,
        ctime_ms: int,
        mtime_ms: int,
        owner: int,
        version: int,
        created_children: int,
    ) -> None:
        self.data = data
        self.czxid = czxid
        self.mzxid = mzxid
        self.pzxid = pzxid
        self.ctime_ms = ctime_ms
        self.mtime_ms = mtime_ms
        self.owner = owner
        self.version = version
        self.created_children = created_children
        # None until the first child: most nodes are leaves, and an empty dict costs more than the rest of one.
        self.children: dict[str, Znode] | None = None

    def stat(self) -> Stat:
        count = len(self.children) if self.children else 0
        # ZooKeeper counts creations and shows changes: each child that is gone was one creation and one deletion.
        cversion = self.created_children * 2 - count
        return Stat(
            self.czxid, self.mzxid, self.pzxid, self.ctime_ms, self.mtime_ms, self.version, cversion, self.owner, count
        )


class ZnodeTree:
    """`zxid` is that of the last transaction applied; `ephemerals` has every owner's paths in creation order."""

    def __init__(self) -> None:
        self.root = Znode(b"", 0, 0, 0, 0, 0, PERSISTENT, 0, 0)
        self.zxid = 0
        self.ephemerals: dict[int, dict[str, None]] = {}

    def find(self, path: str) -> Znode | None:
        node = self.root
        if path != "/":
            for name in path[1:].split("/"):
                children = node.children
                if children is None or name not in children:
                    return None
                node = children[name]
        return node

    def node(self, path: str) -> Znode:
        found = self.find(path)
        if found is None:
            raise NoNodeError(path)
        return found

    def transact(
        self, operations: Sequence[Operation], zxid: int, time_ms: int, session: int
    ) -> tuple[Transaction, list[Outcome]]:
        """Check and apply all operations, or raise what the first impossible one met and leave the tree as it was."""
        undo: list[Callable[[], None]] = []
        changes: list[Change] = []
        outcomes: list[Outcome] = []
        for place, operation in enumerate(operations):
            try:
                outcomes.append(self._perform(operation, zxid, time_ms, session, changes, undo))
            except StoreError as refusal:
                refusal.operation = place
                for step in reversed(undo):
                    step()
                raise
        if changes:
            self.zxid = zxid
        return Transaction(zxid, time_ms, tuple(changes)), outcomes

    def replay(self, transaction: Transaction) -> None:
        zxid, time_ms, changes = transaction
        for kind, path, data, owner in changes:
            parent_path, _, name = path.rpartition("/")
            if kind == CREATE:
                self._attach(self.node(parent_path or "/"), path, name, data, owner, zxid, time_ms)
            elif kind == SET:
                self._write(self.node(path), data, zxid, time_ms)
            else:
                self._detach(self.node(parent_path or "/"), path, name, zxid)
        self.zxid = zxid

    def _perform(
        self,
        operation: Operation,
        zxid: int,
        time_ms: int,
        session: int,
        changes: list[Change],
        undo: list[Callable[[], None]],
    ) -> Outcome:
        if isinstance(operation, Create):
            return self._create(operation, zxid, time_ms, session, changes, undo)
        if isinstance(operation, SetData):
            node = self._expect(operation.path, operation.version)
            data, mzxid, mtime_ms, version = node.data, node.mzxid, node.mtime_ms, node.version

            def restore() -> None:
                node.data, node.mzxid, node.mtime_ms, node.version = data, mzxid, mtime_ms, version

            undo.append(restore)
            self._write(node, operation.data, zxid, time_ms)
            changes.append(Change(SET, operation.path, operation.data))
            return node.stat()
        if isinstance(operation, Delete):
            self._delete(operation, zxid, changes, undo)
            return None
        self._expect(operation.path, operation.version)
        return None

    def _create(
        self,
        operation: Create,
        zxid: int,
        time_ms: int,
        session: int,
        changes: list[Change],
        undo: list[Callable[[], None]],
    ) -> str:
        path = operation.path
        if not operation.sequential:
            check_path(path)
        parent_path, _, name = path.rpartition("/")
        parent = self.find(parent_path or "/")
        if parent is None:
            raise NoNodeError(parent_path)
        if parent.owner != PERSISTENT:
            raise NoChildrenForEphemeralsError(parent_path)
        if operation.sequential:
            suffix = f"{parent.created_children:010d}"
            path, name = path + suffix, name + suffix
            check_path(path)
        if not name or (parent.children is not None and name in parent.children):
            raise NodeExistsError(path)
        owner = session if operation.ephemeral else PERSISTENT
        pzxid = parent.pzxid
        self._attach(parent, path, name, operation.data, owner, zxid, time_ms)

        def withdraw() -> None:
            self._detach(parent, path, name, pzxid)
            parent.created_children -= 1

        undo.append(withdraw)
        changes.append(Change(CREATE, path, operation.data, owner))
        return path

    def _delete(self, operation: Delete, zxid: int, changes: list[Change], undo: list[Callable[[], None]]) -> None:
        path = operation.path
        if path == "/":
            raise InvalidPathError(path, "the root cannot be deleted")
        node = self._expect(path, operation.version)
        if node.children:
            raise NotEmptyError(path)
        parent_path, _, name = path.rpartition("/")
        parent = self.node(parent_path or "/")
        pzxid = parent.pzxid
        self._detach(parent, path, name, zxid)

        def reattach() -> None:
            assert parent.children is not None
            parent.children[name] = node
            parent.pzxid = pzxid
            if node.owner != PERSISTENT:
                self.ephemerals.setdefault(node.owner, {})[path] = None

        undo.append(reattach)
        changes.append(Change(DELETE, path))

    def _expect(self, path: str, version: int) -> Znode:
        check_path(path)
        node = self.node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path, version, node.version)
        return node

    def _attach(self, parent: Znode, path: str, name: str, data: bytes, owner: int, zxid: int, time_ms: int) -> None:
        children = parent.children
        if children is None:
            children = parent.children = {}
        children[intern(name)] = Znode(data, zxid, zxid, zxid, time_ms, time_ms, owner, 0, 0)
        parent.created_children += 1
        parent.pzxid = zxid
        if owner != PERSISTENT:
            self.ephemerals.setdefault(owner, {})[path] = None

    def _write(self, node: Znode, data: bytes, zxid: int, time_ms: int) -> None:
        node.data = data
        node.mzxid = zxid
        node.mtime_ms = time_ms
        node.version += 1

    def _detach(self, parent: Znode, path: str, name: str, pzxid: int) -> None:
        assert parent.children is not None
        node = parent.children.pop(name)
        parent.pzxid = pzxid
        if node.owner != PERSISTENT:
            paths = self.ephemerals[node.owner]
            del paths[path]
            if not paths:
                del self.ephemerals[node.owner]


def events_of(changes: Sequence[Change]) -> list[tuple[WatchEvent, bool]]:
    """What watchers may hear of a transaction, in order; the flag tells a child watch's event from a data watch's.

    A deleted node is news to both kinds of its own watches, and as CHILDREN_CHANGED to its parent's child watches.
    """
    events: list[tuple[WatchEvent, bool]] = []
    for change in changes:
        path = change.path
        if change.kind == SET:
            events.append((WatchEvent(EventKind.DATA_CHANGED, path), False))
            continue
        kind = EventKind.CREATED if change.kind == CREATE else EventKind.DELETED
        events.append((WatchEvent(kind, path), False))
        if change.kind == DELETE:
            events.append((WatchEvent(kind, path), True))
        events.append((WatchEvent(EventKind.CHILDREN_CHANGED, path.rpartition("/")[0] or "/"), True))
    return events
