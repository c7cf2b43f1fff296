"""A session with ZooKeeper: the `CoordinationStore` that the rest of the broker holds.

    call -> waiting -> [connected, fewer in flight than allowed] -> in flight -> answer
             ^                                                        |
             '---- a read whose connection was lost goes back --------'   a change: UnknownOutcomeError

Calls are sent in the order in which they were made, and ZooKeeper answers in that order. While the connection is lost
they wait for it, until the lease ends.

The lease is renewed by answers that the leader of the ensemble had a part in: of changes, of `sync`, of connecting. Not
by reads, which a follower that has lost its leader goes on answering for a while. The heartbeat is a `sync`; one that
stays unanswered gives the connection up, which kazoo would not do by itself while requests are being sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from braidlog.cluster.store import (
    ANY_VERSION,
    MAX_REQUEST_BYTES,
    Create,
    Delete,
    EventKind,
    InvalidPathError,
    LeaseExpiredError,
    Node,
    Operation,
    Outcome,
    RequestTooLargeError,
    SessionExpiredError,
    SessionLease,
    SetData,
    Stat,
    StoreUnavailableError,
    UnknownOutcomeError,
    Watch,
    WatchEvent,
    check_path,
    operation_bytes,
)
from braidlog.cluster.zookeeper.session_connection import (
    ConnectionListener,
    ConnectionLostError,
    Exists,
    GetChildren,
    GetData,
    GetMany,
    Request,
    SessionConnection,
    Sync,
    Transact,
)
from braidlog.cluster.zookeeper.session_metrics import SessionMetrics, SessionState
from braidlog.core.clock import Clock
from braidlog.core.errors import BraidlogError, FatalError
from braidlog.core.tasks import Tasks

# Nodes in one request of `get_many`: a quarter of a millisecond of decoding in kazoo's thread.
_NODES_IN_A_READ: Final = 200
# Of the session timeout: how often a heartbeat is sent, and when an unanswered one gives the connection up.
_HEARTBEAT_SHARE: Final = 1 / 6
_SILENCE_SHARE: Final = 1 / 3

_log = logging.getLogger("braidlog.cluster.zookeeper")


class _Call:
    """One request and whoever waits for its answer."""

    __slots__ = ("answer", "changes", "on_success", "renews", "request", "sent_at")

    def __init__(
        self, request: Request, answer: asyncio.Future[Any], on_success: Callable[[], None] | None = None
    ) -> None:
        self.request = request
        self.answer = answer
        # Whether it may have changed something, should its answer be lost.
        self.changes = isinstance(request, Transact)
        # Whether an answer renews the lease.
        self.renews = isinstance(request, Transact | Sync)
        # Called when the answer arrives, before any event that comes after it.
        self.on_success = on_success
        self.sent_at = 0.0

    def fail(self, problem: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(problem)


class SessionSettings(NamedTuple):
    """`servers` and `connection_timeout_ms` for messages; what else there is concerns the connection alone."""

    servers: str
    connection_timeout_ms: int
    max_in_flight: int
    # Whether every connection has been authenticated.
    sasl: bool = False
    # For messages: what the store is called, and where to look if it cannot be reached.
    store: str = "ZooKeeper"
    advice: str = "see zookeeper.connect and zookeeper.connection.timeout.ms"


class ZooKeeperSession:
    """`connect` makes what carries the session, given who listens to it."""

    def __init__(
        self,
        connect: Callable[[ConnectionListener], SessionConnection],
        settings: SessionSettings,
        clock: Clock,
        metrics: SessionMetrics,
    ) -> None:
        self._settings = settings
        self._now = clock.monotonic
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._connection = connect(self)
        self._tasks = Tasks("zookeeper session")
        self._session_id = 0
        # Set by the first connection, which negotiates the timeout.
        self._lease = SessionLease(self._now, 0.0)
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._connected = False
        self._generation = 0
        self._open = True
        self._expired = False
        self._on_expiry: list[Callable[[], None]] = []
        self._waiting: deque[_Call] = deque()
        # A dict as an ordered set, in the order of sending.
        self._in_flight: dict[_Call, None] = {}
        # Reads whose connection was lost, in the order of sending: the next connection begins with them.
        self._to_resend: list[_Call] = []
        self._end_of_waiting: asyncio.TimerHandle | None = None
        self._data_watches: dict[str, dict[Watch, None]] = {}
        self._child_watches: dict[str, dict[Watch, None]] = {}

    async def open(self) -> None:
        """Connect within `zookeeper.connection.timeout.ms`."""
        self._set_state(SessionState.CONNECTING)
        self._connection.start()
        timeout_ms = self._settings.connection_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._opened
        except TimeoutError:
            await self.close()
            raise StoreUnavailableError(
                f"cannot reach {self._settings.store} at {self._settings.servers} within {timeout_ms} ms "
                f"({self._connection.problem}); {self._settings.advice}"
            ) from None
        except (Exception, asyncio.CancelledError):
            # Not where the coroutine is closed: then nobody waits for anything any more.
            await self.close()
            raise
        self._tasks.spawn("heartbeat", self._heartbeat())

    # -- the interface --

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def expired(self) -> bool:
        return self._expired

    @property
    def lease(self) -> SessionLease:
        return self._lease

    @property
    def session_timeout_s(self) -> float:
        return self._lease.timeout_s

    @property
    def max_request_bytes(self) -> int:
        return MAX_REQUEST_BYTES

    def on_expiry(self, callback: Callable[[], None]) -> None:
        if self._expired:
            callback()
        else:
            self._on_expiry.append(callback)

    async def sync(self) -> None:
        await self._enqueue(Sync()).answer

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        check_path(path)
        return cast(Node, await self._read(GetData(path, watch is not None), path, self._data_watches, watch))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        parts = [paths[at : at + _NODES_IN_A_READ] for at in range(0, len(paths), _NODES_IN_A_READ)]
        answers = await asyncio.gather(*[self._enqueue(GetMany(part)).answer for part in parts])
        return [node for nodes in answers for node in nodes]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        check_path(path)
        return cast(Stat | None, await self._read(Exists(path, watch is not None), path, self._data_watches, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        check_path(path)
        return sorted(await self._read(GetChildren(path, watch is not None), path, self._child_watches, watch))

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        (created,) = await self.multi((Create(path, data, ephemeral, sequential),))
        return cast(str, created)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self.multi((SetData(path, data, version),))
        return cast(Stat, stat)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi((Delete(path, version),))

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        if not operations:
            return []
        _check(operations)
        return cast("list[Outcome]", await self._enqueue(Transact(operations)).answer)

    async def close(self) -> None:
        if self._open:
            self._end()
            if self._metrics.state is not SessionState.AUTH_FAILED:
                self._set_state(SessionState.CLOSED)
            _log.info("session %#x with %s is closed", self._session_id, self._settings.store)
        await self._tasks.close()
        await self._connection.stop()

    # -- calls --

    async def _read(self, request: Request, path: str, table: dict[str, dict[Watch, None]], watch: Watch | None) -> Any:
        def note() -> None:
            if watch is not None:
                table.setdefault(path, {})[watch] = None

        return await self._enqueue(request, note).answer

    def _enqueue(self, request: Request, on_success: Callable[[], None] | None = None) -> _Call:
        if not self._open:
            raise self._over()
        if not self._connected:
            self._lease.check()
            self._limit_waiting()
        call = _Call(request, self._loop.create_future(), on_success)
        self._waiting.append(call)
        self._pump()
        return call

    def _pump(self) -> None:
        """Send what may be sent."""
        while self._connected and self._waiting and len(self._in_flight) < self._settings.max_in_flight:
            call = self._waiting.popleft()
            if call.answer.done():  # nobody waits for it any more
                continue
            if call.changes and not self._lease.valid():
                call.fail(self._lease_over())
                continue
            if not self._submit(call):
                self._waiting.appendleft(call)

    def _submit(self, call: _Call) -> bool:
        call.sent_at = self._now()
        self._in_flight[call] = None
        if self._connection.submit(self._generation, call.request, partial(self._answered, call)):
            return True
        # The connection is gone, of which we have yet to hear.
        del self._in_flight[call]
        self._connected = False
        return False

    def _answered(self, call: _Call, value: Any, problem: BraidlogError | None) -> None:
        if call not in self._in_flight:
            return  # it was given up when the session ended
        del self._in_flight[call]
        if isinstance(problem, ConnectionLostError):
            # Said of each request before it is said of the connection: nothing may be sent in between.
            self._connected = False
            if call.changes:
                call.fail(self._unknown_outcome())
            else:
                self._to_resend.append(call)
            return
        if isinstance(problem, SessionExpiredError):
            call.fail(self._over())
            return
        if call.renews:
            self._lease.answered(call.sent_at)
        self._metrics.request_latency_ms.record((self._now() - call.sent_at) * 1000)
        if problem is not None:
            call.fail(problem)
        else:
            if call.on_success is not None:
                call.on_success()
            if not call.answer.done():
                call.answer.set_result(value)
        self._pump()

    async def _heartbeat(self) -> None:
        timeout_s = self._lease.timeout_s
        while True:
            await asyncio.sleep(timeout_s * _HEARTBEAT_SHARE)
            if not self._connected:
                continue
            # Past the queue: a lease must not wait for reads.
            beat = _Call(Sync(), self._loop.create_future())
            beat.answer.add_done_callback(_whatever_it_is)
            if not self._submit(beat):
                continue
            done, _ = await asyncio.wait((beat.answer,), timeout=timeout_s * _SILENCE_SHARE)
            if not done and beat in self._in_flight:
                _log.warning(
                    "%s has not answered for %.1f s: connecting again", self._settings.store, timeout_s * _SILENCE_SHARE
                )
                self._connection.drop()
                # It need not be sent again.
                beat.answer.cancel()

    # -- what the connection tells, in order --

    def on_connected(self, generation: int, session_id: int, timeout_s: float, sent_at: float) -> None:
        if not self._open:
            return
        store = self._settings.store
        self._generation = generation
        self._metrics.sync_connects.value += 1
        if self._settings.sasl:
            self._metrics.sasl_authentications.value += 1
        self._set_state(SessionState.CONNECTED)
        if self._end_of_waiting is not None:
            self._end_of_waiting.cancel()
            self._end_of_waiting = None
        if not self._opened.done():
            self._session_id = session_id
            self._lease = SessionLease(self._now, timeout_s)
            self._opened.set_result(None)
            _log.info("session %#x with %s is open; it lasts for %.1f s of silence", session_id, store, timeout_s)
        else:
            _log.info("connected to %s again; session %#x goes on", store, session_id)
        self._lease.answered(sent_at)
        self._connected = True
        self._waiting.extendleft(reversed(self._to_resend))
        self._to_resend.clear()
        self._pump()

    def on_disconnected(self) -> None:
        if not self._open:
            return
        self._connected = False
        self._metrics.disconnects.value += 1
        self._set_state(SessionState.CONNECTING)
        left_s = self._lease.remaining_s()
        _log.warning(
            "lost the connection to %s; session %#x lasts for another %.1f s without it",
            self._settings.store,
            self._session_id,
            left_s,
        )
        self._limit_waiting()

    def _limit_waiting(self) -> None:
        if self._end_of_waiting is None:
            self._end_of_waiting = self._loop.call_later(self._lease.remaining_s(), self._end_waiting)

    def _end_waiting(self) -> None:
        """Only for those who wait: who acts checks the lease itself."""
        self._end_of_waiting = None
        if self._connected or not self._open:
            return
        if self._lease.valid():  # timers are a little early at times
            self._limit_waiting()
            return
        _log.warning(
            "%s has not answered within the session timeout: until it does, this broker changes nothing there, "
            "sends no control request and proposes no in-sync replicas",
            self._settings.store,
        )
        for call in [*self._to_resend, *self._waiting]:
            call.fail(self._lease_over())
        self._to_resend.clear()
        self._waiting.clear()

    def on_session_expired(self) -> None:
        if not self._open:
            return
        self._metrics.expires.value += 1
        self._set_state(SessionState.EXPIRED)
        _log.warning(
            "session %#x with %s has expired: its ephemeral nodes are gone", self._session_id, self._settings.store
        )
        self._lose()

    def on_failed(self, problem: str, authentication: bool) -> None:
        if not self._open:
            return
        if authentication:
            self._metrics.auth_failures.value += 1
            self._set_state(SessionState.AUTH_FAILED)
            problem = "it refuses the user or the password; see braidlog.zookeeper.sasl.username and .password"
        error = FatalError(f"cannot use {self._settings.store} at {self._settings.servers}: {problem}")
        if not self._opened.done():
            self._opened.set_exception(error)
            return
        _log.error("%s", error)
        self._lose()

    def on_watch(self, event: WatchEvent) -> None:
        path = event.path
        fired: dict[Watch, None] = {}
        if event.kind != EventKind.CHILDREN_CHANGED:
            fired |= self._data_watches.pop(path, {})
        if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
            fired |= self._child_watches.pop(path, {})
        for watch in fired:
            # Answers wake their tasks through the loop's queue, so events must go the same way to stay in order.
            self._loop.call_soon(self._call_watch, watch, event)

    def _call_watch(self, watch: Watch, event: WatchEvent) -> None:
        if self._open:
            watch(event)

    # -- the end --

    def _lose(self) -> None:
        self._expired = True
        self._end()
        for callback in self._on_expiry:
            callback()

    def _end(self) -> None:
        """Nothing goes out any more; those who wait are told."""
        self._open = False
        self._connected = False
        self._lease.end()
        if self._end_of_waiting is not None:
            self._end_of_waiting.cancel()
        for call in [*self._in_flight, *self._to_resend, *self._waiting]:
            call.fail(self._unknown_outcome() if call.changes and call in self._in_flight else self._over())
        self._in_flight.clear()
        self._to_resend.clear()
        self._waiting.clear()
        self._data_watches.clear()
        self._child_watches.clear()
        if self._opened.done():
            self._tasks.spawn("ending", self._connection.stop())

    def _over(self) -> SessionExpiredError:
        return SessionExpiredError(f"session {self._session_id:#x} is over; open a new one")

    def _unknown_outcome(self) -> UnknownOutcomeError:
        return UnknownOutcomeError(
            f"the connection to {self._settings.store} was lost before it answered; read what is there"
        )

    def _lease_over(self) -> LeaseExpiredError:
        return LeaseExpiredError(f"{self._settings.store} has not answered within the session timeout")

    def _set_state(self, state: SessionState) -> None:
        self._metrics.state = state


def _whatever_it_is(answer: asyncio.Future[Any]) -> None:
    """Of an answer that nothing waits for: without this asyncio complains about the exception in it."""
    if not answer.cancelled():
        answer.exception()


def _check(operations: Sequence[Operation]) -> None:
    size = 0
    for place, operation in enumerate(operations):
        path = operation.path
        try:
            # The number that ZooKeeper appends makes a name of what ends in a slash.
            check_path(path + "0" if isinstance(operation, Create) and operation.sequential else path)
            if isinstance(operation, Delete) and path == "/":
                raise InvalidPathError(path, "the root cannot be deleted")
        except InvalidPathError as refused:
            refused.operation = place
            raise
        size += operation_bytes(operation)
    if size > MAX_REQUEST_BYTES:
        raise RequestTooLargeError(operations[0].path, size, MAX_REQUEST_BYTES)
