"""Our requests as those of kazoo, and ZooKeeper's answers to them as our own types.

kazoo's request classes do for most. It knows no `multiRead` (ZooKeeper 3.6 and newer), which reads hundreds of
nodes in one request:

    request   { type=4, done=0, err=-1 | path, watch=0 } ...  -1, 1, -1
    answer    { type=4, done=0, err=0 | length, data, stat } or { type=-1, done=0, err | err } ...  -1, 1, -1
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as kazoo_requests
from kazoo.security import ACL, Id

from braidlog.cluster import paths
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
    Outcome,
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
)
from braidlog.cluster.zookeeper.session_connection import (
    ConnectionLostError,
    Exists,
    GetChildren,
    GetData,
    GetMany,
    Request,
    Transact,
)
from braidlog.core.errors import BraidlogError

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_GET_DATA: Final = 4
_NO_NODE: Final = -101
_MULTI_HEADER: Final = struct.Struct("!iBi")
_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_READ_PREFIX: Final = _MULTI_HEADER.pack(_GET_DATA, 0, -1)
_END: Final = _MULTI_HEADER.pack(-1, 1, -1)


class _MultiRead:
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


class KazooRequests:
    """For one chroot; `full_path` and `path_below` are the ways below it and back."""

    def __init__(self, chroot: str, secure_acls: bool) -> None:
        self._chroot = chroot
        self._secure_acls = secure_acls

    def full_path(self, path: str) -> str:
        return path if not self._chroot else self._chroot if path == "/" else self._chroot + path

    def path_below(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"

    def encode(self, request: Request) -> Any:
        if isinstance(request, Transact):
            return kazoo_requests.Transaction([self._operation(each) for each in request.operations])
        if isinstance(request, GetMany):
            return _MultiRead([self.full_path(path) for path in request.paths])
        if isinstance(request, GetData):
            return kazoo_requests.GetData(self.full_path(request.path), request.watch)
        if isinstance(request, Exists):
            return kazoo_requests.Exists(self.full_path(request.path), request.watch)
        if isinstance(request, GetChildren):
            return kazoo_requests.GetChildren(self.full_path(request.path), request.watch)
        # The path makes no difference: the server catches up as a whole.
        return kazoo_requests.Sync("/")

    def _operation(self, operation: Operation) -> Any:
        path = self.full_path(operation.path)
        if isinstance(operation, Create):
            acls = [
                ACL(each.permissions, Id(each.scheme, each.identity))
                for each in acls_of(operation.path, self._secure_acls)
            ]
            flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
            # No data is null in ZooKeeper, as Kafka has it: it takes an empty text for a record that it cannot read.
            return kazoo_requests.Create(path, operation.data or None, acls, flags)
        if isinstance(operation, SetData):
            return kazoo_requests.SetData(path, operation.data, operation.version)
        if isinstance(operation, Delete):
            return kazoo_requests.Delete(path, operation.version)
        return kazoo_requests.CheckVersion(path, operation.version)

    def decode(self, request: Request, answer: Any) -> Any:
        """Raises the StoreError with which the request was refused."""
        if isinstance(request, Transact):
            return self._outcomes(request.operations, answer)
        if isinstance(request, GetMany):
            for path, node in zip(request.paths, answer, strict=True):
                if isinstance(node, Exception):
                    raise _refusal(node, path)
            return answer
        if isinstance(request, GetData):
            data, stat = answer
            return Node(data or b"", _stat(stat))
        if isinstance(request, Exists):
            return None if answer is None else _stat(answer)
        return answer

    def _outcomes(self, operations: Sequence[Operation], results: Sequence[Any]) -> list[Outcome]:
        for place, (operation, result) in enumerate(zip(operations, results, strict=True)):
            # Those around the one that was refused say that they were rolled back.
            if isinstance(result, Exception) and not isinstance(result, _ROLLED_BACK):
                refused = _refusal(result, operation.path, operation)
                refused.operation = place
                raise refused
        return [
            self.path_below(result)
            if isinstance(operation, Create)
            else _stat(result)
            if isinstance(operation, SetData)
            else None
            for operation, result in zip(operations, results, strict=True)
        ]

    def problem(self, request: Request, problem: Exception) -> BraidlogError:
        """What kazoo reports instead of an answer."""
        if isinstance(problem, kazoo_errors.ConnectionLoss | kazoo_errors.ConnectionClosedError):
            return ConnectionLostError("the connection to ZooKeeper was lost")
        if isinstance(problem, kazoo_errors.SessionExpiredError | kazoo_errors.AuthFailedError):
            return SessionExpiredError("the session with ZooKeeper is over")
        path = request.path if isinstance(request, GetData | Exists | GetChildren) else "/"
        return _refusal(problem, path)


_ROLLED_BACK: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
_REFUSALS: Final[dict[type[Exception], Callable[[str], StoreError]]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.NotEmptyError: NotEmptyError,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    kazoo_errors.BadArgumentsError: lambda path: InvalidPathError(path, "ZooKeeper refuses the path"),
    kazoo_errors.NoAuthError: lambda path: StoreError(
        path, "the node's ACL in ZooKeeper does not allow this; see zookeeper.set.acl"
    ),
    kazoo_errors.InvalidACLError: lambda path: StoreError(
        path, "ZooKeeper knows no identity of this connection to protect the node for"
    ),
}
# Of a create these are about the parent.
_ABOUT_PARENT: Final = (kazoo_errors.NoNodeError, kazoo_errors.NoChildrenForEphemeralsError)


def _refusal(problem: Exception, path: str, operation: Operation | None = None) -> StoreError:
    if isinstance(problem, kazoo_errors.BadVersionError):
        return BadVersionError(path, operation.version if isinstance(operation, SetData | Delete | Check) else -1)
    if isinstance(operation, Create) and isinstance(problem, _ABOUT_PARENT):
        path = path.rpartition("/")[0] or "/"
    refused = _REFUSALS.get(type(problem))
    return StoreError(path, f"ZooKeeper refuses it ({type(problem).__name__})") if refused is None else refused(path)


# Who may read and change a node: Kafka's rules for `zookeeper.set.acl`.

READ: Final = 1
ALL: Final = 31


class Acl(NamedTuple):
    permissions: int
    scheme: str
    identity: str


OPEN: Final = (Acl(ALL, "world", "anyone"),)
# `auth` stands for whoever the connection has authenticated as.
_CREATOR: Final = Acl(ALL, "auth", "")
_READABLE: Final = Acl(READ, "world", "anyone")
# Credentials and secrets: the passwords of brokers' listeners, SCRAM users, delegation tokens.
_SENSITIVE: Final = (f"{paths.CONFIG}/users", f"{paths.CONFIG}/brokers", "/delegation_token/tokens")


def acls_of(path: str, secure: bool) -> tuple[Acl, ...]:
    """For a node that is created at this path (without the chroot)."""
    # Old consumers, each with an identity of its own, write below this one.
    if not secure or path == paths.CONSUMERS:
        return OPEN
    return (_CREATOR,) if path.startswith(_SENSITIVE) else (_CREATOR, _READABLE)
