"""kazoo as the carrier of one ZooKeeper session: it connects, reconnects, pings and frames, in a thread of its own.

kazoo's own calls are not used, and these of its habits are changed here:

    watches     kazoo forgets them when the connection is lost; here they are set again on the next one (`SetWatches`),
                and the server says which of them have fired meanwhile, before it answers anything else
    order       kazoo hands watch events and answers to two threads; here all enter one `EventQueue`
    sessions    kazoo opens a new session after one has expired; here that ends it: whoever wants another opens one
    timeouts    the negotiated one is told; connecting to one of several servers has its share of it, not the whole
    TLS         with the `ssl.SSLContext` of our own settings; replies that share a TLS record are not left lying

All of this rests on parts of kazoo that are not its public interface, which is why its version is pinned.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Exists, GetChildren, write_string
from kazoo.protocol.states import Callback, EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry

from braidlog.cluster.store import EventKind, StoreError, WatchEvent
from braidlog.cluster.zookeeper.connection_settings import ConnectionSettings
from braidlog.cluster.zookeeper.event_queue import EventQueue
from braidlog.cluster.zookeeper.kazoo_requests import KazooRequests
from braidlog.cluster.zookeeper.session_connection import ConnectionListener, OnAnswer, Request
from braidlog.core.errors import BraidlogError

_SET_WATCHES_XID: Final = -8
# What ZooKeeper's own client puts into one such request.
_SET_WATCHES_BYTES: Final = 128 * 1024
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 1.0
# How long the server has to take leave; without that the session ends by its timeout.
_CLOSE_TIMEOUT_S: Final = 2.0
_KINDS: Final = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.DATA_CHANGED,
    EventType.CHILD: EventKind.CHILDREN_CHANGED,
}

# What kazoo has to say is said by the session in plain words; its bugs are not kept quiet.
_kazoo_log = logging.getLogger("braidlog.cluster.zookeeper.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class KazooConnection:
    """A `SessionConnection`; made on the loop.

    Connections are numbered, and a request is meant for one of them: what is sent on the next one is for those to
    decide who have heard that it is there.
    """

    def __init__(self, settings: ConnectionSettings, listener: ConnectionListener, now: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        events = EventQueue(self._loop)
        self._events = events
        self._listener = listener
        self._requests = KazooRequests(settings.chroot, settings.secure_acls)
        self._stopping: asyncio.Future[None] | None = None
        self._handler = _Handler(settings, events, listener, self._requests)
        self._client = _Client(
            hosts=settings.servers_text,
            timeout=settings.session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_FIRST_RETRY_S,
                max_delay=_LONGEST_RETRY_S,
                sleep_func=self._handler.sleep_func,
            ),
            logger=_kazoo_log,
        )
        sasl = None
        if settings.sasl_username:
            sasl = {
                "mechanism": "DIGEST-MD5",
                "username": settings.sasl_username,
                "password": settings.sasl_password,
            }
        self._connection = _Connection(self._client, sasl, events, listener, now)
        self._client._connection = self._connection
        self._client.add_listener(self._on_state)

    @property
    def problem(self) -> str:
        """Why the last attempt to connect failed."""
        return self._connection.problem

    def start(self) -> None:
        self._client.start_async()

    def submit(self, generation: int, request: Request, on_answer: OnAnswer) -> bool:
        encoded = self._requests.encode(request)
        with self._client.gate:
            if self._client.generation != generation:
                return False
            self._client._call(encoded, _Answer(self._events, self._requests, request, on_answer))
        return True

    def drop(self) -> None:
        """kazoo notices, and connects again."""
        connected = self._connection._socket
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = self._loop.run_in_executor(None, self._stop)
        await asyncio.shield(self._stopping)

    def _stop(self) -> None:
        """Blocks until kazoo's thread has ended."""
        client = self._client
        impatience = threading.Timer(_CLOSE_TIMEOUT_S, self.drop)
        impatience.start()
        try:
            with suppress(Exception):  # a connection that never came up, or went meanwhile, has nothing to be told
                client.stop()
            with suppress(Exception):
                self._connection.stop(client._session_timeout / 1000)
                client.close()
        finally:
            impatience.cancel()

    def _on_state(self, state: str) -> None:
        """In kazoo's thread."""
        if state == KazooState.SUSPENDED:
            self._events.put(self._listener.on_disconnected)
        elif state == KazooState.LOST:
            reason = self._client.client_state
            if reason == KeeperState.EXPIRED_SESSION:
                # Without this kazoo would go on with a session of its own making.
                self._client._stopped.set()
                self._events.put(self._listener.on_session_expired)
            elif not self._client._stopped.is_set():
                authentication = reason == KeeperState.AUTH_FAILED
                self._events.put(partial(self._listener.on_failed, self.problem, authentication))


class _Answer:
    """What kazoo takes for its AsyncResult: passes the answer, decoded, on to the loop."""

    __slots__ = ("_events", "_on_answer", "_request", "_requests")

    def __init__(self, events: EventQueue, requests: KazooRequests, request: Request, on_answer: OnAnswer) -> None:
        self._events = events
        self._requests = requests
        self._request = request
        self._on_answer: OnAnswer | None = on_answer

    def set(self, value: Any = None) -> None:
        try:
            answer = self._requests.decode(self._request, value)
        except StoreError as refused:
            self._pass_on(None, refused)
        else:
            self._pass_on(answer, None)

    def set_exception(self, problem: Exception) -> None:
        self._pass_on(None, self._requests.problem(self._request, problem))

    def _pass_on(self, answer: Any, problem: BraidlogError | None) -> None:
        # kazoo may report a connection that closed under a request twice.
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            self._events.put(partial(on_answer, answer, problem))


class _Client(KazooClient):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        self.gate = threading.Lock()
        # The number of the connection that takes requests, 0 for none.
        self.generation = 0
        super().__init__(**options)

    def _session_callback(self, state: str) -> None:
        """Whatever is submitted before this is answered in here, and nothing is submitted after it."""
        if state not in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            with self.gate:
                self.generation = 0
        super()._session_callback(state)

    def _reset_watchers(self) -> None:
        """Not when the connection is lost: see `_Connection._connect`."""
        if self._state != KeeperState.CONNECTING:
            super()._reset_watchers()


class _SetWatches:
    """Watches of an earlier connection: the server fires those that should have fired since, and keeps the others."""

    type = 101

    def __init__(self, zxid: int, *paths: Sequence[str]) -> None:
        self._zxid = zxid
        self._paths = paths

    def serialize(self) -> bytes:
        parts = [struct.pack("!q", self._zxid)]
        for paths in self._paths:
            parts.append(struct.pack("!i", len(paths)))
            parts += [write_string(path) for path in paths]
        return b"".join(parts)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """The methods here run in kazoo's thread."""

    def __init__(
        self,
        client: KazooClient,
        sasl_options: dict[str, str] | None,
        events: EventQueue,
        listener: ConnectionListener,
        now: Callable[[], float],
    ) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=_kazoo_log, sasl_options=sasl_options)
        self._events = events
        self._listener = listener
        self._now = now
        self._connections = 0
        self.problem = "no server has answered"
        # Paths with a watch for a node that was missing: the server is told so when they are set again.
        self._watched_missing: set[str] = set()

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        client = self.client
        seen_zxid = client.last_zxid
        sent_at = self._now()
        try:
            read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
            self._set_watches_again(seen_zxid, connect_timeout_ms / 1000)
        except Exception as problem:
            self.problem = f"{host}:{port}: {_text(problem)}"
            raise
        # kazoo's read timeout is two thirds of what was negotiated.
        timeout_s = read_timeout_ms * 1.5 / 1000
        self._connections += 1
        with client.gate:
            client.generation = self._connections
        told = partial(self._listener.on_connected, self._connections, client._session_id, timeout_s, sent_at)
        self._events.put(told)
        return read_timeout_ms, connect_timeout_ms

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = super()._expand_client_hosts()
        if not found:
            self.problem = "no host name of them is known here"
        return found

    def _set_watches_again(self, zxid: int, timeout_s: float) -> None:
        """Before anything else is sent, so that no read overtakes the event that announces what it shows."""
        for request in self._watches_to_set(zxid):
            self._submit(request, timeout_s, _SET_WATCHES_XID)
            while True:
                header, buffer, offset = self._read_header(timeout_s)
                if header.xid == WATCH_XID:
                    self._read_watch_event(buffer, offset)
                elif header.xid == _SET_WATCHES_XID:
                    break

    def _watches_to_set(self, zxid: int) -> Iterator[_SetWatches]:
        client = self.client
        missing = [path for path in client._data_watchers if path in self._watched_missing]
        self._watched_missing = set(missing)
        present = [path for path in client._data_watchers if path not in self._watched_missing]
        children = list(client._child_watchers)
        batch: tuple[list[str], list[str], list[str]] = ([], [], [])
        size = 0
        for place, paths in enumerate((present, missing, children)):
            for path in paths:
                batch[place].append(path)
                size += len(path) + 4
                if size >= _SET_WATCHES_BYTES:
                    yield _SetWatches(zxid, *batch)
                    batch, size = ([], [], []), 0
        if size:
            yield _SetWatches(zxid, *batch)

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        request = self.client._pending[0][0]
        if getattr(request, "watcher", None) and not isinstance(request, GetChildren):
            if request.type == Exists.type and header.err == NoNodeError.code:
                self._watched_missing.add(request.path)
            else:
                self._watched_missing.discard(request.path)
        return super()._read_response(header, buffer, offset)


def _text(problem: Exception) -> str:
    return str(problem).removeprefix("socket connection error: ") or type(problem).__name__


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """One thread, that of the connection: what it has to tell goes to the loop instead of to workers."""

    def __init__(
        self, settings: ConnectionSettings, events: EventQueue, listener: ConnectionListener, requests: KazooRequests
    ) -> None:
        super().__init__()
        self._settings = settings
        self._requests = requests
        self._events = events
        self._listener = listener

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:
                _kazoo_log.debug("the connection to ZooKeeper has ended", exc_info=True)

        thread = threading.Thread(target=run, name="braidlog-zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Callback) -> None:
        (event,) = callback.args
        kind = _KINDS.get(event.type)
        if kind is not None:
            self._events.put(partial(self._listener.on_watch, WatchEvent(kind, self._requests.path_below(event.path))))

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        settings = self._settings
        timeout_s = settings.session_timeout_ms / 1000 / len(settings.servers)
        connected = socket.create_connection(address, timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.tls is not None:
                connected = settings.tls.context.wrap_socket(connected, server_hostname=hostname)
        except BaseException:
            connected.close()
            raise
        return connected

    def select(self, reading: Any, writing: Any, failing: Any, timeout: float | None = None) -> Any:
        """With `poll`: kazoo makes a new epoll, four system calls, for every piece it reads."""
        # What TLS has received and not yet handed out is there to be read, whatever the socket says.
        held = [each for each in reading if getattr(each, "pending", None) is not None and each.pending()]
        poller = select.poll()
        for each in reading:
            poller.register(each, select.POLLIN)
        for each in writing:
            poller.register(each, select.POLLOUT)
        if held:
            timeout = 0
        ready = {fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)}
        return (
            [each for each in reading if each in held or each.fileno() in ready],
            [each for each in writing if each.fileno() in ready],
            [],
        )
