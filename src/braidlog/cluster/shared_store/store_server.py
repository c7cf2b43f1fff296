"""Serves an embedded store to the other processes of this machine, over a Unix socket, as ZooKeeper would serve them.

    connected ----- the connection is lost -----> waits for its process, until its timeout
        ^                                             |            |
        '------------- HELLO with its id -------------'            '---> expired: its ephemerals go

A session belongs to a process and not to a connection, and it outlives the process that serves it: who has which
session, and with what timeout, is in the file `sessions` beside the journal before a client hears of its session. When
the store comes back every session has its whole timeout to connect again. No lease can outlast its session, since a
lease is counted from when a request was sent, and a timeout from when it was received.

What a session watches is forgotten when its connection is: the client reads again what it watched. So an event cannot
be lost between a server that has sent it and a client that has not received it.

The socket is for this user alone: others cannot open it, and who connects all the same is turned away by its user id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.journal_files import JournalFiles
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.shared_store import frames
from braidlog.cluster.shared_store.frames import BadFrameError, Frames, Hello
from braidlog.cluster.shared_store.socket_path import reachable_path
from braidlog.cluster.store import (
    SessionExpiredError,
    StoreError,
    StoreFailedError,
    StoreUnavailableError,
    WatchEvent,
)
from braidlog.cluster.zookeeper.session_connection import Exists, GetChildren, GetData, GetMany, Request, Transact
from braidlog.core.clock import Clock
from braidlog.core.errors import FatalError
from braidlog.core.tasks import Tasks

SHORTEST_TIMEOUT_MS: Final = 1_000
LONGEST_TIMEOUT_MS: Final = 120_000

_SESSIONS: Final = "sessions"
# How often it is looked for sessions whose time is over.
_TICK_S: Final = 0.1
# Later than this the look came because this process stood still, and not because its clients were silent.
_STALL_S: Final = 1.0
# A client has ten requests under way; one with this many does not wait for answers.
_MOST_REQUESTS: Final = 1_000
# Answers that a client does not read.
_MOST_UNREAD_BYTES: Final = 2 * frames.MOST_ANSWER_BYTES
# Who connects says HELLO at once.
_HELLO_TIMEOUT_S: Final = 10.0
_PEER_CREDENTIALS: Final = struct.Struct("3i")

_log = logging.getLogger("braidlog.cluster.store")


class _ServedSession:
    def __init__(self, embedded: EmbeddedSession, owner: str, timeout_s: float, now: float) -> None:
        self.embedded = embedded
        self.owner = owner
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.connection: _Connection | None = None

    @property
    def id(self) -> int:
        return self.embedded.session_id

    def send_event(self, event: WatchEvent) -> None:
        """The one watch of this session, on whatever it watches."""
        if self.connection is not None:
            self.connection.send(frames.encode_event(event))

    def let_go(self) -> None:
        """The connection that it had is not its own any more."""
        if self.connection is not None:
            self.connection.session = None
            self.connection.close()
            self.connection = None


class StoreServer:
    """`store` was opened with `keep_ephemerals`, on `files`, which are only read here, before it serves."""

    def __init__(self, store: EmbeddedStore, files: JournalFiles, clock: Clock) -> None:
        self._store = store
        self._now = clock.monotonic
        self._tasks = Tasks("store server")
        self._sessions: dict[int, _ServedSession] = {}
        self._connections: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._path = ""
        self._on_idle: Callable[[], None] | None = None
        # Ended sessions whose ephemerals could not be removed.
        self._left_over: dict[int, None] = {}
        # Whether the file of sessions names those that there are, and no other.
        self._recorded = True
        self._resume(files)

    def _resume(self, files: JournalFiles) -> None:
        """The sessions that there were when the store was stopped, or died."""
        known: dict[int, tuple[str, float]] = {}
        if _SESSIONS in files.names():
            known = _decode_sessions(files.read(_SESSIONS))
        for session_id in [*self._store.tree.ephemerals, *known]:
            if session_id not in self._sessions:
                # One of which only its ephemerals are known has had the longest timeout, for all that is known.
                owner, timeout_s = known.get(session_id, ("", LONGEST_TIMEOUT_MS / 1000))
                self._add(_ServedSession(self._store.resume(session_id), owner, timeout_s, self._now()))

    def _add(self, session: _ServedSession) -> None:
        self._sessions[session.id] = session

    async def start(self, path: str) -> None:
        """Serve at the Unix socket `path`; the store's own lock says that no other process does."""
        self._path = path
        listening = _listen(path)
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(self), sock=listening)
        self._tasks.spawn("expiry", self._expire_silent())
        if self._sessions:
            _log.info("the store is back: %d sessions may go on", len(self._sessions))

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Until nobody is connected, but not for longer than that: who stops needs the store for it."""
        idle = asyncio.Event()
        self._on_idle = idle.set
        if self._connections:
            try:
                async with asyncio.timeout(timeout_s):
                    await idle.wait()
            except TimeoutError:
                _log.warning("%d processes still use the store; it stops without them", len(self._connections))

    async def close(self) -> None:
        """Sessions stay: their processes may connect to the next one that serves this store."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        await self._tasks.close()
        if not self._recorded:
            try:
                await self._write_sessions()
            except OSError as problem:
                _log.warning("sessions that have ended are not forgotten: %s", problem)
        if self._path:
            with suppress(FileNotFoundError):
                os.unlink(self._path)

    async def expire(self, session_id: int) -> None:
        """End a session whose process has not asked for that; its client is told."""
        session = self._sessions.get(session_id)
        if session is not None:
            await self._end(session, told=True)

    # -- connections --

    def opened(self, connection: _Connection) -> None:
        self._connections[connection] = None

    def lost(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None
            if session.id in self._sessions:
                _log.info("session %#x (%s) has lost its connection", session.id, session.owner or "no name")
        if not self._connections and self._on_idle is not None:
            self._on_idle()

    def received(self, connection: _Connection, frame: bytes) -> None:
        """Raises BadFrameError."""
        session = connection.session
        if session is None:
            if connection.greeted:
                return  # what comes from an old connection of a session does not count any more
            hello = frames.decode_hello(frame)
            connection.greeted = True
            self._tasks.spawn("hello", self._greet(connection, hello))
            return
        xid, request = frames.decode_request(frame)
        if connection.unanswered >= _MOST_REQUESTS:
            raise BadFrameError(f"more than {_MOST_REQUESTS} requests that wait for an answer")
        connection.unanswered += 1
        session.deadline = self._now() + session.timeout_s
        # Tasks begin in the order in which they were made, and each touches the tree in its first step.
        self._tasks.spawn("request", self._answer(connection, session, xid, request))

    async def _greet(self, connection: _Connection, hello: Hello) -> None:
        if hello.session_id:
            session = self._sessions.get(hello.session_id)
            if session is None or session.owner != hello.owner:
                connection.send(frames.encode_expired())
                connection.close()
                return
            session.let_go()
            self._store.watches.forget(session.embedded)
            session.deadline = self._now() + session.timeout_s
        else:
            try:
                session = await self._open(hello)
            except (OSError, StoreFailedError) as problem:
                connection.send(frames.encode_refused(f"the store cannot open a session: {problem}"))
                connection.close()
                return
        if connection.is_open:
            session.connection, connection.session = connection, session
            connection.send(frames.encode_welcome(session.id, round(session.timeout_s * 1000)))

    async def _open(self, hello: Hello) -> _ServedSession:
        for other in [each for each in self._sessions.values() if hello.owner and each.owner == hello.owner]:
            # Its process is dead, or it would not ask for another session.
            _log.info("session %#x of %s is over: the process has begun anew", other.id, other.owner)
            await self._end(other, told=True)
        timeout_ms = min(max(hello.timeout_ms, SHORTEST_TIMEOUT_MS), LONGEST_TIMEOUT_MS)
        session = _ServedSession(self._store.connect(), hello.owner, timeout_ms / 1000, self._now())
        self._add(session)
        try:
            await self._write_sessions()
        except BaseException:
            del self._sessions[session.id]
            await self._store.end_session(session.embedded)
            raise
        return session

    async def _write_sessions(self) -> None:
        self._recorded = True
        await self._store.write_beside(_SESSIONS, _encode_sessions(self._sessions))

    # -- requests --

    async def _answer(
        self, connection: _Connection, session: _ServedSession, xid: int, request: Request | None
    ) -> None:
        try:
            if request is None:
                await self._end(session, told=False)
                value = None
            else:
                value = await _perform(session, request)
            answer = frames.encode_answer(xid, request, value)
        except StoreError as refusal:
            answer = frames.encode_error(xid, refusal)
        except StoreFailedError as problem:
            # Nothing has changed, and a store that is back after a while may take it.
            answer = frames.encode_error(xid, StoreUnavailableError(str(problem)))
        except SessionExpiredError:
            return  # which the client is told of the session itself
        finally:
            connection.unanswered -= 1
        connection.send(answer)

    # -- the end of sessions --

    async def _end(self, session: _ServedSession, *, told: bool) -> None:
        if self._sessions.pop(session.id, None) is None:
            return
        self._recorded = False
        session.embedded.lose()
        if told and session.connection is not None:
            session.connection.send(frames.encode_expired())
            session.let_go()
        await self._remove_ephemerals(session.embedded)

    async def _remove_ephemerals(self, ended: EmbeddedSession) -> None:
        """Those for which the disk has no room now are removed at a later look."""
        try:
            await self._store.end_session(ended)
        except StoreFailedError:
            self._left_over[ended.session_id] = None
            raise

    async def _expire_silent(self) -> None:
        before = self._now()
        while True:
            await asyncio.sleep(_TICK_S)
            now = self._now()
            if now - before > _STALL_S:
                # Requests that came meanwhile have yet to be read.
                for session in self._sessions.values():
                    session.deadline += now - before
            before = now
            try:
                await self._end_silent(now)
            except StoreFailedError as problem:
                _log.error("nodes of ended sessions are still there, it is tried again: %s", problem)

    async def _end_silent(self, now: float) -> None:
        for session_id in list(self._left_over):
            del self._left_over[session_id]
            await self._remove_ephemerals(self._store.resume(session_id))
        for session in [each for each in self._sessions.values() if each.deadline <= now]:
            if session.deadline > self._now():
                continue  # it was heard while another one was ended
            _log.warning(
                "session %#x (%s) has expired after %g s of silence",
                session.id, session.owner or "no name", session.timeout_s,
            )  # fmt: skip
            await self._end(session, told=True)


async def _perform(session: _ServedSession, request: Request) -> Any:
    store = session.embedded
    if isinstance(request, Transact):
        return await store.multi(request.operations)
    if isinstance(request, GetMany):
        return await store.get_many(request.paths)
    if isinstance(request, GetData | Exists | GetChildren):
        watch = session.send_event if request.watch else None
        if isinstance(request, GetData):
            return await store.get(request.path, watch)
        if isinstance(request, Exists):
            return await store.exists(request.path, watch)
        return await store.children(request.path, watch)
    await store.sync()
    return None


class _Connection(asyncio.Protocol):
    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._frames = Frames(frames.MOST_REQUEST_BYTES)
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self.session: _ServedSession | None = None
        # Whether HELLO has come.
        self.greeted = False
        self.unanswered = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        user = _peer_user(transport.get_extra_info("socket"))
        if user not in (None, 0, os.getuid()):
            _log.warning("user %s must not use the store of user %d", user, os.getuid())
            self._transport.abort()
            return
        self._server.opened(self)
        self._hello_timer = asyncio.get_running_loop().call_later(_HELLO_TIMEOUT_S, self._end_unless_greeted)

    def _end_unless_greeted(self) -> None:
        if not self.greeted:
            self.close()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._server.received(self, frame)
        except BadFrameError as problem:
            _log.warning("a connection to the store is closed: %s", problem)
            self.send(frames.encode_refused(str(problem)))
            self.close()

    def send(self, frame: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(frame)
        if transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            _log.warning("a connection to the store is closed: it does not read its answers")
            transport.abort()

    def close(self) -> None:
        """What was sent goes out first."""
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, problem: Exception | None) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._server.lost(self)


def _listen(path: str) -> socket.socket:
    """Replaces a socket that a dead process has left behind."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Bound first under another name: nobody finds it before it is for this user alone, and listens.
        unready = f"{path}.new"
        with suppress(FileNotFoundError):
            os.unlink(unready)
        with reachable_path(unready) as name:
            listening.bind(name)
        os.chmod(unready, 0o600)
        listening.listen()
        os.rename(unready, path)
    except OSError as problem:
        listening.close()
        raise FatalError(f"cannot serve the store at {path}: {problem.strerror or problem}") from problem
    return listening


def _peer_user(connection: socket.socket) -> int | None:
    """The user at the other end; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, user, _ = _PEER_CREDENTIALS.unpack(data)
    return int(user)


def _encode_sessions(sessions: dict[int, _ServedSession]) -> bytes:
    rows = [
        {"id": each.id, "owner": each.owner, "timeout_ms": round(each.timeout_s * 1000)} for each in sessions.values()
    ]
    return json.dumps({"version": 1, "sessions": rows}).encode()


def _decode_sessions(data: bytes) -> dict[int, tuple[str, float]]:
    try:
        content = json.loads(data)
        if content["version"] != 1:
            raise FatalError(
                f"the store's file `{_SESSIONS}` has version {content['version']}, which is newer than this braidlog: "
                "start the one that has written it"
            )
        return {int(row["id"]): (str(row["owner"]), int(row["timeout_ms"]) / 1000) for row in content["sessions"]}
    except (ValueError, KeyError, TypeError):
        _log.warning(
            "the store's file `%s` cannot be read: sessions are kept by their ephemeral nodes alone", _SESSIONS
        )
        return {}
