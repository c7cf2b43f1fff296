"""A ZooKeeper ensemble on virtual time: what carries sessions here is simulated, the session on top is the real one.

    session -- link --> server (a copy that lags) --> leader (the tree, sessions, zxids)
            <---------- answers and watch events, in order

A change takes effect at the leader at once and reaches every server a little later, each at its own time; the answer
goes back through the session's server, after the change and its watch events are there. Reads are what that server
knows. `sync` waits until it knows what the leader did.

Faults, drawn from the one `Random` or ordered by a test: a link that breaks before an answer (an unknown outcome) or is
cut until further notice; a session that is silent for its timeout and ended at the next tick; an ensemble that is down
(no session ends meanwhile, and all have their whole timeout after it); a server that lags.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from braidlog.cluster.store import (
    Delete,
    EventKind,
    Node,
    NoNodeError,
    Operation,
    SessionExpiredError,
    StoreError,
    WatchEvent,
)
from braidlog.cluster.tree import Transaction, ZnodeTree, events_of
from braidlog.cluster.zookeeper.session import SessionSettings, ZooKeeperSession
from braidlog.cluster.zookeeper.session_connection import (
    ConnectionListener,
    ConnectionLostError,
    Exists,
    GetChildren,
    GetData,
    GetMany,
    OnAnswer,
    Request,
    Transact,
)
from braidlog.cluster.zookeeper.session_metrics import SessionMetrics
from braidlog.core.clock import Clock
from braidlog.core.errors import BraidlogError
from braidlog.metrics import MetricsRegistry
from braidlog.testing.simulated.loop import Process, SimulatedLoop, current_process

_SERVERS: Final = 3
_LATENCY_S: Final = 0.001
# How far a server may lag behind the leader, mostly and now and then.
_LAG_S: Final = 0.002
_LONG_LAG_S: Final = 0.5
_LONG_LAG_ONE_IN: Final = 20
_RECONNECT_S: Final = 0.2
_TICK_S: Final = 0.5

Trace = Callable[[str], None]


class _Server:
    """A copy of the tree that takes over the leader's transactions in order, each a little later."""

    def __init__(self, ensemble: SimulatedZooKeeper, number: int) -> None:
        self._ensemble = ensemble
        self.number = number
        self.tree = ZnodeTree()
        self._last_arrival = 0.0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        # A dict as an ordered set, of those that are connected here.
        self.connections: dict[SimulatedSessionConnection, None] = {}

    def send(self, transaction: Transaction) -> None:
        self._last_arrival = max(self._last_arrival, self._ensemble.now()) + self._ensemble.lag()
        self._ensemble.at(self._last_arrival, lambda: self._apply(transaction))

    def _apply(self, transaction: Transaction) -> None:
        self.tree.replay(transaction)
        events = events_of(transaction.changes)
        for connection in list(self.connections):
            for event, of_children in events:
                connection.changed(event, of_children)
        ready = [call for zxid, call in self._waiting if zxid <= self.tree.zxid]
        self._waiting = [each for each in self._waiting if each[0] > self.tree.zxid]
        for call in ready:
            call()

    def when_at(self, zxid: int, call: Callable[[], None]) -> None:
        if self.tree.zxid >= zxid:
            call()
        else:
            self._waiting.append((zxid, call))


class _SessionRecord:
    """What the leader knows of a session."""

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.is_open = True


class SimulatedZooKeeper:
    """`open_session` opens sessions under the name of a link, by which `cut` and `restore` reach them."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        clock: Clock,
        *,
        session_timeout_s: float = 6.0,
        trace: Trace | None = None,
    ) -> None:
        self.loop = loop
        self._random = random
        self._clock = clock
        self._timeout_s = session_timeout_s
        self._trace = trace if trace is not None else lambda line: None
        self._process = Process("zookeeper")
        self.tree = ZnodeTree()
        self._servers = [_Server(self, number) for number in range(_SERVERS)]
        self._sessions: dict[int, _SessionRecord] = {}
        self._last_session = 0
        self._ticking = False
        self._connections: list[SimulatedSessionConnection] = []
        self._metrics: dict[str, SessionMetrics] = {}
        self._cut: set[str] = set()
        self.is_up = True
        # A link breaks before the answer of one request in so many; 0 for none.
        self.lose_answer_one_in = 0
        # Called after every transaction with the session and what it changed.
        self.on_transaction: list[Callable[[int, Transaction], None]] = []

    async def open_session(self, link: str, connection_timeout_ms: int = 18_000) -> ZooKeeperSession:
        metrics = self._metrics.get(link)
        if metrics is None:
            metrics = self._metrics[link] = SessionMetrics(MetricsRegistry())

        def connect(listener: ConnectionListener) -> SimulatedSessionConnection:
            made = SimulatedSessionConnection(self, link, listener)
            self._connections.append(made)
            return made

        settings = SessionSettings("simulated", connection_timeout_ms, 10)
        session = ZooKeeperSession(connect, settings, self._clock, metrics)
        await session.open()
        return session

    # Faults, in a test's hands

    def cut(self, link: str) -> None:
        """From now on whatever is sent over this link is lost; nobody is told."""
        self._note(f"the link of {link} is cut")
        self._cut.add(link)

    def restore(self, link: str) -> None:
        self._note(f"the link of {link} is back")
        self._cut.discard(link)

    def go_down(self) -> None:
        """Every server at once: connections break, no session ends before it is up again."""
        self._note("the ensemble is down")
        self.is_up = False
        for connection in list(self._connections):
            connection.break_off()

    def come_up(self) -> None:
        self._note("the ensemble is up")
        self.is_up = True
        for record in self._sessions.values():
            record.heard_at = self.now()

    def break_link(self, link: str) -> None:
        """The connections of this link break now, and may be made again at once."""
        for connection in [each for each in self._connections if each.link == link]:
            connection.break_off()

    def expire(self, session_id: int) -> None:
        """End a session as if it had been silent for its timeout."""
        record = self._sessions.get(session_id)
        if record is not None and record.is_open:
            self._end_session(session_id)

    # For connections and servers

    def now(self) -> float:
        return self.loop.time()

    def at(self, when: float, call: Callable[[], None]) -> None:
        """In the ensemble's own process, whoever asks."""
        self.loop.call_at(when, call, context=self._process.context.copy())

    def lag(self) -> float:
        longest = _LONG_LAG_S if self._random.randrange(_LONG_LAG_ONE_IN) == 0 else _LAG_S
        return self._random.random() * longest

    def latency(self) -> float:
        return self._random.random() * _LATENCY_S

    def retry_delay(self) -> float:
        return self._random.random() * _RECONNECT_S

    def choose_server(self) -> _Server:
        return self._random.choice(self._servers)

    def reachable(self, link: str) -> bool:
        return self.is_up and link not in self._cut

    def loses_answer(self) -> bool:
        return self.lose_answer_one_in > 0 and self._random.randrange(self.lose_answer_one_in) == 0

    def attach(self, session_id: int) -> int:
        """The id of a new session for 0; 0 if the one asked for is over."""
        if session_id:
            if not self.heard(session_id):
                return 0
            return session_id
        self._last_session += 1
        self._sessions[self._last_session] = _SessionRecord(self.now())
        self._start_ticking()
        return self._last_session

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def heard(self, session_id: int) -> bool:
        """False if the session is over."""
        record = self._sessions.get(session_id)
        if record is None or not record.is_open:
            return False
        record.heard_at = self.now()
        return True

    def transact(self, operations: list[Operation], session_id: int) -> tuple[int, list[Any]]:
        transaction, outcomes = self.tree.transact(operations, self.tree.zxid + 1, self._clock.wall_ms(), session_id)
        if transaction.changes:
            for server in self._servers:
                server.send(transaction)
            for observe in self.on_transaction:
                observe(session_id, transaction)
        return self.tree.zxid, outcomes

    def close_session(self, session_id: int) -> int:
        """Returns the zxid after which its ephemerals are gone."""
        record = self._sessions.get(session_id)
        if record is not None and record.is_open:
            self._end_session(session_id)
        return self.tree.zxid

    def forget(self, connection: SimulatedSessionConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)

    def _end_session(self, session_id: int) -> None:
        self._note(f"session {session_id} is over")
        self._sessions[session_id].is_open = False
        paths = self.tree.ephemerals.get(session_id)
        if paths:
            self.transact([Delete(path) for path in paths], session_id)
        for connection in [each for each in self._connections if each.session_id == session_id]:
            connection.break_off()

    def _start_ticking(self) -> None:
        if not self._ticking:
            self._ticking = True
            self.at(self.now() + _TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        open_sessions = {number: record for number, record in self._sessions.items() if record.is_open}
        if self.is_up:
            for number, record in open_sessions.items():
                if self.now() - record.heard_at >= self._timeout_s:
                    self._end_session(number)
        if open_sessions:
            self._start_ticking()

    def _note(self, line: str) -> None:
        self._trace(f"zookeeper: {line}")


class SimulatedSessionConnection:
    """A `SessionConnection`: one after the other, each to some server of the ensemble."""

    def __init__(self, ensemble: SimulatedZooKeeper, link: str, listener: ConnectionListener) -> None:
        self._ensemble = ensemble
        self.link = link
        self._listener = listener
        self._owner = current_process()
        self.problem = "no server has answered"
        self.session_id = 0
        self._seen_zxid = 0
        self._generation = 0
        # That of the connection which takes requests, 0 for none.
        self._live = 0
        self._server: _Server | None = None
        self._stopped = False
        self._unanswered: dict[int, OnAnswer] = {}
        self._requests = 0
        self._last_to_server = 0.0
        self._last_to_client = 0.0
        # Something of this connection was lost on a link that was cut: as it keeps its order, so is all after it.
        self._is_silent = False
        # What the server watches for this session: paths of data, of nodes that are missing, of children.
        self._watched: dict[str, dict[str, None]] = {"data": {}, "missing": {}, "children": {}}

    # The client's side

    def start(self) -> None:
        self._try_later(self._ensemble.latency())

    def submit(self, generation: int, request: Request, on_answer: OnAnswer) -> bool:
        if generation != self._live or self._stopped:
            return False
        self._requests += 1
        number = self._requests
        self._unanswered[number] = on_answer
        self._to_server(lambda: self._receive(generation, number, request))
        return True

    def drop(self) -> None:
        self.break_off()

    async def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        ensemble = self._ensemble
        if self.session_id and self._live and ensemble.reachable(self.link):
            done = ensemble.loop.create_future()

            def ended() -> None:
                if not done.done():
                    done.set_result(None)

            server = self._server
            assert server is not None

            def end() -> None:
                if not ensemble.reachable(self.link):
                    self._in_client(ended)
                    return
                server.when_at(ensemble.close_session(self.session_id), lambda: self._in_client(ended))

            self._to_server(end)
            await done
        self._leave()
        ensemble.forget(self)

    # Connecting

    def _try_later(self, delay: float) -> None:
        ensemble = self._ensemble
        ensemble.loop.call_later(delay, self._connect)

    def _connect(self) -> None:
        if self._stopped or self._live:
            return
        ensemble = self._ensemble
        sent_at = ensemble.now()
        if not ensemble.reachable(self.link):
            self.problem = "simulated: connection refused"
            self._try_later(ensemble.retry_delay() + 0.01)
            return
        server = ensemble.choose_server()
        ensemble.at(sent_at + ensemble.latency(), lambda: self._attach(server, sent_at))

    def _attach(self, server: _Server, sent_at: float) -> None:
        """At the server. One that knows less than the client has seen turns it away."""
        ensemble = self._ensemble
        if self._stopped or self._live or not self._is_client_alive():
            return
        if not ensemble.reachable(self.link) or server.tree.zxid < self._seen_zxid:
            self._in_client(lambda: self._try_later(ensemble.retry_delay()))
            return
        session_id = ensemble.attach(self.session_id)
        if not session_id:
            self._stopped = True
            ensemble.forget(self)
            self._in_client(self._listener.on_session_expired)
            return
        self.session_id = session_id
        self._is_silent = False
        self._generation += 1
        self._live = self._generation
        self._server = server
        server.connections[self] = None
        generation = self._generation
        self._set_watches_again(server)
        self._in_client(lambda: self._listener.on_connected(generation, session_id, ensemble.timeout_s, sent_at))

    def _set_watches_again(self, server: _Server) -> None:
        """Those that should have fired since the client last heard of the tree fire now."""
        find, seen = server.tree.find, self._seen_zxid
        for path in list(self._watched["data"]):
            node = find(path)
            if node is None:
                self._fire(WatchEvent(EventKind.DELETED, path), ("data",))
            elif node.mzxid > seen:
                self._fire(WatchEvent(EventKind.DATA_CHANGED, path), ("data",))
        for path in list(self._watched["missing"]):
            if find(path) is not None:
                self._fire(WatchEvent(EventKind.CREATED, path), ("missing",))
        for path in list(self._watched["children"]):
            node = find(path)
            if node is None:
                self._fire(WatchEvent(EventKind.DELETED, path), ("children",))
            elif node.pzxid > seen:
                self._fire(WatchEvent(EventKind.CHILDREN_CHANGED, path), ("children",))

    # Both directions keep their order

    def _to_server(self, call: Callable[[], None]) -> None:
        ensemble = self._ensemble
        self._last_to_server = max(self._last_to_server, ensemble.now()) + ensemble.latency()
        ensemble.at(self._last_to_server, call)

    def _in_client(self, call: Callable[[], None]) -> None:
        ensemble = self._ensemble
        self._last_to_client = max(self._last_to_client, ensemble.now()) + ensemble.latency()
        context = self._owner.context.copy() if self._owner is not None else None
        ensemble.loop.call_at(self._last_to_client, call, context=context)

    def _is_lost(self) -> bool:
        if not self._ensemble.reachable(self.link):
            self._is_silent = True
        return self._is_silent

    def _is_client_alive(self) -> bool:
        return self._owner is None or self._owner.alive

    def break_off(self) -> None:
        """The connection is gone: every unanswered request is told so, then the session, which goes on trying."""
        if not self._live:
            return
        self._leave()

        def tell() -> None:
            unanswered, self._unanswered = self._unanswered, {}
            for on_answer in unanswered.values():
                on_answer(None, ConnectionLostError("the simulated connection was lost"))
            if not self._stopped:
                self._listener.on_disconnected()
                self._try_later(self._ensemble.retry_delay())

        self._in_client(tell)

    def _leave(self) -> None:
        self._live = 0
        if self._server is not None:
            self._server.connections.pop(self, None)
            self._server = None

    # At the server

    def _receive(self, generation: int, number: int, request: Request) -> None:
        ensemble = self._ensemble
        server = self._server
        if generation != self._live or server is None or self._is_lost():
            return  # with its connection, or on a link that is cut
        if not ensemble.heard(self.session_id):
            self._answer(generation, number, None, SessionExpiredError("the simulated session is over"))
            return
        lost = ensemble.loses_answer()
        if isinstance(request, Transact):
            self._change(generation, number, server, request, lost)
        elif isinstance(request, GetData | Exists | GetChildren | GetMany):
            answer, problem = self._read(server, request)
            self._answer(generation, number, answer, problem)
        else:
            server.when_at(ensemble.tree.zxid, lambda: self._answer(generation, number, None, None))
        if lost:
            self.break_off()

    def _change(self, generation: int, number: int, server: _Server, request: Transact, lost: bool) -> None:
        ensemble = self._ensemble
        try:
            zxid, outcomes = ensemble.transact(list(request.operations), self.session_id)
        except StoreError as refused:
            problem = refused  # also a refusal tells of what others did before
            server.when_at(ensemble.tree.zxid, lambda: self._answer(generation, number, None, problem))
            return
        if not lost:
            server.when_at(zxid, lambda: self._answer(generation, number, outcomes, None))

    def _read(
        self, server: _Server, request: GetData | Exists | GetChildren | GetMany
    ) -> tuple[Any, StoreError | None]:
        find = server.tree.find
        if isinstance(request, GetMany):
            nodes = [find(path) for path in request.paths]
            return [None if node is None else Node(node.data, node.stat()) for node in nodes], None
        node = find(request.path)
        if request.watch:
            if isinstance(request, GetChildren):
                kind = "children"
            else:
                kind = "data" if node is not None else "missing"
            if node is not None or isinstance(request, Exists):
                self._watched[kind][request.path] = None
        if isinstance(request, Exists):
            return (None if node is None else node.stat()), None
        if node is None:
            return None, NoNodeError(request.path)
        if isinstance(request, GetData):
            return Node(node.data, node.stat()), None
        return list(node.children or ()), None

    def _answer(self, generation: int, number: int, answer: Any, problem: BraidlogError | None) -> None:
        server = self._server
        if generation != self._live or server is None or self._is_lost():
            return
        zxid = server.tree.zxid

        def arrive() -> None:
            on_answer = self._unanswered.pop(number, None)
            if on_answer is not None:
                self._seen_zxid = max(self._seen_zxid, zxid)
                on_answer(answer, problem)

        self._in_client(arrive)

    def changed(self, event: WatchEvent, of_children: bool) -> None:
        """The server has applied a change."""
        if of_children:
            self._fire(event, ("children",))
        else:
            self._fire(event, ("data", "missing"))

    def _fire(self, event: WatchEvent, kinds: tuple[str, ...]) -> None:
        if not any(event.path in self._watched[kind] for kind in kinds) or self._is_lost():
            return
        for kind in kinds:
            self._watched[kind].pop(event.path, None)
        self._in_client(lambda: self._listener.on_watch(event))
