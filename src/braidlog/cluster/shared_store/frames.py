"""What goes over the socket of a shared store: frames, as bytes and as values. Every number is big-endian.

    frame      | length: u32 | kind: u8 | body |          the length counts kind and body
    text       | length: u32 | UTF-8 |                    paths, names, messages
    data       | length: u32 | bytes |
    stat       | czxid mzxid pzxid ctime_ms mtime_ms ephemeral_owner: i64 | version cversion num_children: i32 |

    to the store
    HELLO      | "BLss" | version: u16 | session: i64, 0 for a new one | timeout_ms: u32 | owner: text |
    request    | xid: u32 | ... |                         GET, EXISTS, CHILDREN: watch: u8, path
                                                          GET_MANY: count: u32, paths; TRANSACT: count: u32, operations
    operation  | kind: u8 | path | data | version: i32 | flags: u8 |

    from the store
    WELCOME    | session: i64 | timeout_ms: u32 |         the answer to HELLO
    REFUSED    | text |                                   the other answer: this process cannot use the store
    EXPIRED    | |                                        the session is over
    ANSWER     | xid: u32 | shape: u8 | value |
    ERROR      | xid: u32 | code: u8 | operation: u32 | expected: i32 | actual: i32 | path | text |
    EVENT      | kind: u8 | path |

Whatever is not of this form raises BadFrameError, and nothing is allocated for a length that the frame does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from braidlog.cluster.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    InvalidPathError,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Outcome,
    RequestTooLargeError,
    SetData,
    Stat,
    StoreError,
    StoreUnavailableError,
    WatchEvent,
)
from braidlog.cluster.zookeeper.session_connection import (
    Exists,
    GetChildren,
    GetData,
    GetMany,
    Request,
    Sync,
    Transact,
)
from braidlog.core.errors import BraidlogError

# A request has at most half of this (`MAX_REQUEST_BYTES`); an answer may list a large cluster's topics.
MOST_REQUEST_BYTES: Final = 1 << 20
MOST_ANSWER_BYTES: Final = 64 << 20
VERSION: Final = 1

HELLO: Final = 1
GET: Final = 2
EXISTS: Final = 3
CHILDREN: Final = 4
GET_MANY: Final = 5
TRANSACT: Final = 6
SYNC: Final = 7
CLOSE: Final = 8
WELCOME: Final = 32
REFUSED: Final = 33
EXPIRED: Final = 34
ANSWER: Final = 35
ERROR: Final = 36
EVENT: Final = 37

_MAGIC: Final = b"BLss"
_HEAD: Final = Struct(">IB")
_HELLO: Final = Struct(">4sHqI")
_WELCOME: Final = Struct(">qI")
_U32: Final = Struct(">I")
_U8: Final = Struct(">B")
_VERSION_AND_FLAGS: Final = Struct(">iB")
_ERROR: Final = Struct(">IBIii")
_STAT: Final = Struct(">qqqqqqiii")
_LENGTH_SIZE: Final = 4

# Operations.
_CREATE, _SET, _DELETE, _CHECK = 1, 2, 3, 4
_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
# Shapes of answers.
_NOTHING, _NODE, _STAT_ONLY, _NAMES, _NODES, _OUTCOMES = range(6)
# Outcomes within an answer.
_NO_OUTCOME, _PATH, _NEW_STAT = range(3)
_UNAVAILABLE: Final = 100
_OTHER: Final = 101
_UNKNOWN: Final = -(1 << 31)
_REFUSALS: Final[tuple[type[StoreError], ...]] = (
    NoNodeError,
    NodeExistsError,
    BadVersionError,
    NotEmptyError,
    NoChildrenForEphemeralsError,
    InvalidPathError,
    RequestTooLargeError,
)
# Kinds that the session asks for with one path and a watch.
_READS: Final[dict[int, type[GetData] | type[Exists] | type[GetChildren]]] = {
    GET: GetData,
    EXISTS: Exists,
    CHILDREN: GetChildren,
}


class BadFrameError(BraidlogError):
    """What came over the socket is not of this protocol."""


class Hello(NamedTuple):
    """`owner` is a process that has at most one session: its new session ends the one that it had before."""

    session_id: int
    timeout_ms: int
    owner: str


class Frames:
    """Cuts what arrives into frames; `most` is the longest that may come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, each from its kind on. Raises BadFrameError."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        position = 0
        while len(buffer) - position >= _LENGTH_SIZE:
            (length,) = _U32.unpack_from(buffer, position)
            if not 1 <= length <= self._most:
                raise BadFrameError(f"a frame of {length} bytes; there are 1 to {self._most}")
            end = position + _LENGTH_SIZE + length
            if len(buffer) < end:
                break
            found.append(bytes(buffer[position + _LENGTH_SIZE : end]))
            position = end
        del buffer[:position]
        return found


class _Reader:
    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 1

    def unpack(self, form: Struct) -> tuple[Any, ...]:
        position, self._position = self._position, self._position + form.size
        if self._position > len(self._frame):
            raise BadFrameError("a frame that ends too early")
        return form.unpack_from(self._frame, position)

    def number(self, form: Struct = _U32) -> int:
        (value,) = self.unpack(form)
        return int(value)

    def data(self) -> bytes:
        size = self.number()
        start, self._position = self._position, self._position + size
        if self._position > len(self._frame):
            raise BadFrameError("a frame that ends too early")
        return self._frame[start : self._position]

    def text(self) -> str:
        try:
            return self.data().decode()
        except UnicodeDecodeError:
            raise BadFrameError("a text that is not UTF-8") from None

    def count(self, least_size: int) -> int:
        """How many follow, each of at least so many bytes."""
        count = self.number()
        if count * least_size > len(self._frame) - self._position:
            raise BadFrameError(f"{count} entries in a frame of {len(self._frame)} bytes")
        return count

    def stat(self) -> Stat:
        czxid, mzxid, pzxid, ctime_ms, mtime_ms, owner, version, cversion, children = self.unpack(_STAT)
        return Stat(czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, owner, children)

    def end(self) -> None:
        if self._position != len(self._frame):
            raise BadFrameError("a frame with something at its end")


def kind_of(frame: bytes) -> int:
    return frame[0]


def _frame(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _HEAD.pack(len(body) + 1, kind) + body


def _data(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data


def _text(text: str) -> bytes:
    return _data(text.encode())


def _stat(stat: Stat) -> bytes:
    return _STAT.pack(
        stat.czxid, stat.mzxid, stat.pzxid, stat.ctime_ms, stat.mtime_ms, stat.ephemeral_owner,
        stat.version, stat.cversion, stat.num_children,
    )  # fmt: skip


# To the store


def encode_hello(hello: Hello) -> bytes:
    return _frame(HELLO, _HELLO.pack(_MAGIC, VERSION, hello.session_id, hello.timeout_ms), _text(hello.owner))


def decode_hello(frame: bytes) -> Hello:
    """Raises BadFrameError also for another version, and says which."""
    if kind_of(frame) != HELLO:
        raise BadFrameError("whoever connects begins with HELLO")
    reader = _Reader(frame)
    magic, version, session_id, timeout_ms = reader.unpack(_HELLO)
    if magic != _MAGIC:
        raise BadFrameError("this is not a client of a shared store")
    if version != VERSION:
        raise BadFrameError(f"version {version} of the protocol is not known here, only {VERSION}: restart all workers")
    hello = Hello(session_id, timeout_ms, reader.text())
    reader.end()
    return hello


def encode_close(xid: int) -> bytes:
    return _frame(CLOSE, _U32.pack(xid))


def encode_request(xid: int, request: Request) -> bytes:
    head = _U32.pack(xid)
    if isinstance(request, Transact):
        operations = request.operations
        return _frame(TRANSACT, head, _U32.pack(len(operations)), *map(_operation, operations))
    if isinstance(request, GetMany):
        return _frame(GET_MANY, head, _U32.pack(len(request.paths)), *map(_text, request.paths))
    if isinstance(request, Sync):
        return _frame(SYNC, head)
    kind = next(kind for kind, each in _READS.items() if isinstance(request, each))
    return _frame(kind, head, _U8.pack(request.watch), _text(request.path))


def _operation(operation: Operation) -> bytes:
    data, version, flags = b"", 0, 0
    if isinstance(operation, Create):
        kind, data = _CREATE, operation.data
        flags = _EPHEMERAL * operation.ephemeral | _SEQUENTIAL * operation.sequential
    elif isinstance(operation, SetData):
        kind, data, version = _SET, operation.data, operation.version
    else:
        kind, version = _DELETE if isinstance(operation, Delete) else _CHECK, operation.version
    return b"".join((_U8.pack(kind), _text(operation.path), _data(data), _VERSION_AND_FLAGS.pack(version, flags)))


def decode_request(frame: bytes) -> tuple[int, Request | None]:
    """The request's number, and the request; None for CLOSE."""
    kind = kind_of(frame)
    reader = _Reader(frame)
    xid = reader.number()
    request: Request | None
    if kind in _READS:
        watch = bool(reader.number(_U8))
        request = _READS[kind](reader.text(), watch)
    elif kind == GET_MANY:
        request = GetMany([reader.text() for _ in range(reader.count(4))])
    elif kind == TRANSACT:
        request = Transact([_read_operation(reader) for _ in range(reader.count(14))])
    elif kind == SYNC:
        request = Sync()
    elif kind == CLOSE:
        request = None
    else:
        raise BadFrameError(f"a request of the unknown kind {kind}")
    reader.end()
    return xid, request


def _read_operation(reader: _Reader) -> Operation:
    kind = reader.number(_U8)
    path, data = reader.text(), reader.data()
    version, flags = reader.unpack(_VERSION_AND_FLAGS)
    if kind == _CREATE:
        return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
    if kind == _SET:
        return SetData(path, data, version)
    if kind == _DELETE:
        return Delete(path, version)
    if kind == _CHECK:
        return Check(path, version)
    raise BadFrameError(f"an operation of the unknown kind {kind}")


# From the store


def encode_welcome(session_id: int, timeout_ms: int) -> bytes:
    return _frame(WELCOME, _WELCOME.pack(session_id, timeout_ms))


def decode_welcome(frame: bytes) -> tuple[int, int]:
    """The session's id, and its timeout in milliseconds."""
    reader = _Reader(frame)
    session_id, timeout_ms = reader.unpack(_WELCOME)
    reader.end()
    return session_id, timeout_ms


def encode_refused(why: str) -> bytes:
    return _frame(REFUSED, _text(why))


def decode_refused(frame: bytes) -> str:
    return _Reader(frame).text()


def encode_expired() -> bytes:
    return _frame(EXPIRED)


def encode_event(event: WatchEvent) -> bytes:
    return _frame(EVENT, _U8.pack(event.kind), _text(event.path))


def decode_event(frame: bytes) -> WatchEvent:
    reader = _Reader(frame)
    kind = reader.number(_U8)
    path = reader.text()
    reader.end()
    try:
        return WatchEvent(EventKind(kind), path)
    except ValueError:
        raise BadFrameError(f"an event of the unknown kind {kind}") from None


def encode_answer(xid: int, request: Request | None, value: Any) -> bytes:
    """`value` is what `SessionConnection` answers such a request with."""
    shape, parts = _answer_parts(request, value)
    answer = _frame(ANSWER, _U32.pack(xid), _U8.pack(shape), *parts)
    if len(answer) > MOST_ANSWER_BYTES:
        problem = StoreUnavailableError(f"an answer of {len(answer)} bytes is more than the socket carries")
        return encode_error(xid, problem)
    return answer


def _answer_parts(request: Request | None, value: Any) -> tuple[int, Sequence[bytes]]:
    if isinstance(request, Transact):
        return _OUTCOMES, (_U32.pack(len(value)), *map(_outcome, value))
    if isinstance(request, GetMany):
        return _NODES, (_U32.pack(len(value)), *map(_node_or_none, value))
    if isinstance(request, GetData):
        return _NODE, (_stat(value.stat), _data(value.data))
    if isinstance(request, GetChildren):
        return _NAMES, (_U32.pack(len(value)), *map(_text, value))
    if isinstance(request, Exists) and value is not None:
        return _STAT_ONLY, (_stat(value),)
    return _NOTHING, ()


def _outcome(outcome: Outcome) -> bytes:
    if outcome is None:
        return _U8.pack(_NO_OUTCOME)
    if isinstance(outcome, str):
        return _U8.pack(_PATH) + _text(outcome)
    return _U8.pack(_NEW_STAT) + _stat(outcome)


def _node_or_none(node: Node | None) -> bytes:
    return _U8.pack(0) if node is None else _U8.pack(1) + _stat(node.stat) + _data(node.data)


def decode_answer(frame: bytes) -> tuple[int, Any, BraidlogError | None]:
    """The number of the request, its answer, and why there is none."""
    reader = _Reader(frame)
    if kind_of(frame) == ERROR:
        return _read_error(reader)
    xid, shape = reader.number(), reader.number(_U8)
    value: Any = None
    if shape == _NODE:
        stat = reader.stat()
        value = Node(reader.data(), stat)
    elif shape == _STAT_ONLY:
        value = reader.stat()
    elif shape == _NAMES:
        value = [reader.text() for _ in range(reader.count(4))]
    elif shape == _NODES:
        value = [_read_node(reader) for _ in range(reader.count(1))]
    elif shape == _OUTCOMES:
        value = [_read_outcome(reader) for _ in range(reader.count(1))]
    elif shape != _NOTHING:
        raise BadFrameError(f"an answer of the unknown shape {shape}")
    reader.end()
    return xid, value, None


def _read_node(reader: _Reader) -> Node | None:
    if not reader.number(_U8):
        return None
    stat = reader.stat()
    return Node(reader.data(), stat)


def _read_outcome(reader: _Reader) -> Outcome:
    kind = reader.number(_U8)
    if kind == _PATH:
        return reader.text()
    return reader.stat() if kind == _NEW_STAT else None


def encode_error(xid: int, problem: StoreError | StoreUnavailableError) -> bytes:
    """A refusal of the store, or that it can change nothing at the moment."""
    operation, expected, actual, path = 0, 0, _UNKNOWN, ""
    text = str(problem)
    if isinstance(problem, StoreError):
        code = next((at for at, each in enumerate(_REFUSALS) if isinstance(problem, each)), _OTHER)
        operation, path = problem.operation, problem.path
        text = text.removeprefix(f"{path}: ")
        if isinstance(problem, BadVersionError):
            expected = problem.expected
            actual = _UNKNOWN if problem.actual is None else problem.actual
    else:
        code = _UNAVAILABLE
    return _frame(ERROR, _ERROR.pack(xid, code, operation, expected, actual), _text(path), _text(text))


def _read_error(reader: _Reader) -> tuple[int, None, BraidlogError]:
    xid, code, operation, expected, actual = reader.unpack(_ERROR)
    path, text = reader.text(), reader.text()
    reader.end()
    if code == _UNAVAILABLE:
        return xid, None, StoreUnavailableError(text)
    kind = _REFUSALS[code] if code < len(_REFUSALS) else StoreError
    problem: StoreError
    if kind is BadVersionError:
        problem = BadVersionError(path, expected, None if actual == _UNKNOWN else actual)
    else:
        problem = kind.__new__(kind)
        StoreError.__init__(problem, path, text)
    problem.operation = operation
    return xid, None, problem
