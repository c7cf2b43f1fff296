"""Operations and reads as the requests that go to ZooKeeper, and its answers as our own types.

kazoo's request classes do for most. Its client knows no `multiRead` (ZooKeeper 3.6 and newer), which reads hundreds of
nodes in one request:

    request   { type=4, done=0, err=-1 | path, watch=0 } ...  -1, 1, -1
    answer    { type=4, done=0, err=0 | length, data, stat } or { type=-1, done=0, err | err } ...  -1, 1, -1
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as kazoo_requests
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id

from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
    StoreError,
)
from braidlog.cluster.zookeeper.acls import acls_of

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_GET_DATA: Final = 4
_NO_NODE: Final = -101
_MULTI_HEADER: Final = struct.Struct("!iBi")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_READ_PREFIX: Final = _MULTI_HEADER.pack(_GET_DATA, 0, -1)
_END: Final = _MULTI_HEADER.pack(-1, 1, -1)


class MultiRead:
    """The nodes at these paths (with the chroot); None for each that is missing."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def __repr__(self) -> str:
        return f"MultiRead({len(self._paths)} paths)"

    def serialize(self) -> bytes:
        parts = []
        for path in self._paths:
            encoded = path.encode()
            parts.append(b"%b%b%b\0" % (_READ_PREFIX, _INT.pack(len(encoded)), encoded))
        parts.append(_END)
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> list[Node | Exception | None]:
        """A read that was refused is the exception in its place."""
        results: list[Node | Exception | None] = []
        while True:
            kind, done, error = _MULTI_HEADER.unpack_from(buffer, offset)
            offset += _MULTI_HEADER.size
            if done:
                return results
            if kind == -1:
                (error,) = _INT.unpack_from(buffer, offset)
                offset += _INT.size
                results.append(None if error == _NO_NODE else kazoo_errors.EXCEPTIONS[error]())
                continue
            (length,) = _INT.unpack_from(buffer, offset)
            offset += _INT.size
            data = b""
            if length > 0:
                data = buffer[offset : offset + length]
                offset += length
            results.append(Node(data, _stat(_STAT.unpack_from(buffer, offset))))
            offset += _STAT.size


def _stat(fields: tuple[int, ...]) -> Stat:
    czxid, mzxid, ctime_ms, mtime_ms, version, cversion, _, owner, _, num_children, pzxid = fields
    return Stat(czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, owner, num_children)


def stat_of(found: ZnodeStat) -> Stat:
    return _stat(tuple(found))


def operation_request(operation: Operation, chroot: str, secure_acls: bool) -> Any:
    """One operation as kazoo's request, alone or inside a `Transaction`."""
    path = full_path(chroot, operation.path)
    if isinstance(operation, Create):
        acls = [ACL(each.permissions, Id(each.scheme, each.identity)) for each in acls_of(operation.path, secure_acls)]
        flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
        return kazoo_requests.Create(path, operation.data, acls, flags)
    if isinstance(operation, SetData):
        return kazoo_requests.SetData(path, operation.data, operation.version)
    if isinstance(operation, Delete):
        return kazoo_requests.Delete(path, operation.version)
    return kazoo_requests.CheckVersion(path, operation.version)


def full_path(chroot: str, path: str) -> str:
    return path if not chroot else chroot if path == "/" else chroot + path


def path_below(chroot: str, path: str) -> str:
    """The other way round, for what ZooKeeper tells us."""
    return path[len(chroot) :] or "/"


def refusal(problem: Exception, path: str, operation: Operation | None = None) -> StoreError | None:
    """ZooKeeper's error as ours; None for what is no refusal."""
    if isinstance(problem, kazoo_errors.NoNodeError):
        # That of a create is about the parent.
        return NoNodeError(path.rpartition("/")[0] or "/" if isinstance(operation, Create) else path)
    if isinstance(problem, kazoo_errors.NodeExistsError):
        return NodeExistsError(path)
    if isinstance(problem, kazoo_errors.BadVersionError):
        expected = operation.version if isinstance(operation, SetData | Delete | Check) else -1
        return BadVersionError(path, expected)
    if isinstance(problem, kazoo_errors.NotEmptyError):
        return NotEmptyError(path)
    if isinstance(problem, kazoo_errors.NoChildrenForEphemeralsError):
        return NoChildrenForEphemeralsError(path.rpartition("/")[0] or "/")
    if isinstance(problem, kazoo_errors.BadArgumentsError):
        return InvalidPathError(path, "ZooKeeper refuses the path")
    if isinstance(problem, kazoo_errors.NoAuthError):
        return StoreError(path, "the node's ACL in ZooKeeper does not allow this; see zookeeper.set.acl")
    if isinstance(problem, kazoo_errors.InvalidACLError):
        return StoreError(path, "ZooKeeper knows no identity of this connection to protect the node for")
    return None
