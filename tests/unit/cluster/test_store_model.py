"""The embedded store against a model that is a dict: random calls, crashes at random points, and reopening."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from braidlog.cluster import recovery
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import Create, Delete, Operation, SetData, StoreError
from braidlog.core.clock import ManualClock
from support.memory_journal import MemoryJournalFiles

T = TypeVar("T")
PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/z"]
Entry = tuple[bytes, int, int, int]  # data, version, czxid, owner


class HeldExecutor(Executor):
    """Runs a job at once, or holds it while told to: held jobs are what a crash catches under way."""

    held = False

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, fn, args))
        if not self.held:
            self.run()
        return future

    def run(self) -> None:
        while self.jobs:
            future, fn, args = self.jobs.pop(0)
            future.set_result(fn(*args))


class Model:
    """What must be true: nodes by path, and the number of children each ever had."""

    def __init__(self) -> None:
        self.nodes: dict[str, Entry] = {}
        self.created: dict[str, int] = {}

    def copy(self) -> Model:
        other = Model()
        other.nodes, other.created = dict(self.nodes), dict(self.created)
        return other

    def apply(self, operations: list[Operation], zxid: int, session: int) -> bool:
        """False, and nothing changed, if any operation is impossible."""
        trial = self.copy()
        for operation in operations:
            if not trial._one(operation, zxid, session):
                return False
        self.nodes, self.created = trial.nodes, trial.created
        return True

    def _one(self, operation: Operation, zxid: int, session: int) -> bool:
        path = operation.path
        parent = path.rpartition("/")[0]
        if isinstance(operation, Create):
            if parent and (parent not in self.nodes or self.nodes[parent][3]):
                return False
            if operation.sequential:
                path = f"{path}{self.created.get(parent, 0):010d}"
            if path in self.nodes:
                return False
            self.nodes[path] = (operation.data, 0, zxid, session if operation.ephemeral else 0)
            self.created[parent] = self.created.get(parent, 0) + 1
            self.created.pop(path, None)
            return True
        if path not in self.nodes or operation.version not in (-1, self.nodes[path][1]):
            return False
        _, version, czxid, owner = self.nodes[path]
        if isinstance(operation, SetData):
            self.nodes[path] = (operation.data, version + 1, czxid, owner)
        elif isinstance(operation, Delete):
            if any(each.startswith(path + "/") for each in self.nodes):
                return False
            del self.nodes[path]
        return True

    def end_session(self, session: int) -> bool:
        gone = [path for path, entry in self.nodes.items() if entry[3] == session]
        for path in gone:
            del self.nodes[path]
        return bool(gone)


operations = st.one_of(
    st.builds(
        Create, st.sampled_from(PATHS), st.binary(max_size=5), st.booleans(), st.sampled_from([False, False, True])
    ),
    st.builds(SetData, st.sampled_from(PATHS), st.binary(max_size=5), st.sampled_from([-1, -1, 0, 1])),
    st.builds(Delete, st.sampled_from(PATHS), st.sampled_from([-1, -1, 0, 1])),
)


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.files = MemoryJournalFiles()
        self.model = Model()
        self.highest = 0
        self.wrote: set[int] = set()
        self.waiting: list[asyncio.Task[Any]] = []
        self.open()

    def open(self) -> None:
        self.executor = HeldExecutor()
        self.store = EmbeddedStore.open(self.files, ManualClock(), self.executor)
        self.sessions: list[EmbeddedSession] = [self.store.connect(), self.store.connect()]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 10))

    @rule(batch=st.lists(operations, min_size=1, max_size=4), who=st.integers(0, 1))
    def change(self, batch: list[Operation], who: int) -> None:
        session = self.sessions[who]
        zxid = self.store.zxid + 1
        expected = self.model.apply(batch, zxid, session.session_id)
        try:
            self.run(session.multi(batch))
            done = True
        except StoreError:
            done = False
        assert done == expected
        assert self.store.zxid == zxid - (0 if done else 1)
        self.highest = max(self.highest, self.store.zxid)
        if done:
            self.wrote.add(session.session_id)

    @rule(who=st.integers(0, 1))
    def replace_session(self, who: int) -> None:
        self.model.end_session(self.sessions[who].session_id)
        self.run(self.sessions[who].close())
        self.sessions[who] = self.store.connect()

    @rule()
    def fold(self) -> None:
        folded = recovery.take_snapshot(self.files)
        self.store._journal, self.store._journal_size = folded.journal, 0

    @rule(batch=st.lists(operations, min_size=1, max_size=6), seed=st.integers(0, 1 << 16), reach_disk=st.booleans())
    def crash(self, batch: list[Operation], seed: int, reach_disk: bool) -> None:
        """Die with changes under way: either they all happened, or none did."""
        self.executor.held = True
        session = self.sessions[0]
        after = self.model.copy()
        zxid = self.store.zxid + 1
        pending = after.apply(batch, zxid, session.session_id)
        task = self.loop.create_task(session.multi(batch))
        self.run(_ticks())
        assert not task.done() or not pending
        if reach_disk and self.executor.jobs:
            _, _, (frame, journal, *_) = self.executor.jobs[0]
            self.files.append(journal, frame)  # written, but the sync did not return
        task.cancel()
        self.run(_ticks())
        self.files.crash(random.Random(seed))
        self.reopen_as((self.model, after) if pending and reach_disk else (self.model,))

    @rule()
    def close_and_open(self) -> None:
        self.run(self.store.close())
        self.reopen_as((self.model,))

    def reopen_as(self, possible: tuple[Model, ...]) -> None:
        owners = [session.session_id for session in self.sessions]
        self.open()
        shown = self.read_all()
        for model in possible:
            for owner in owners:
                model.end_session(owner)
        matching = [model for model in possible if model.nodes == shown]
        assert matching, (shown, [model.nodes for model in possible])
        self.model = matching[0]
        assert not self.wrote.intersection(session.session_id for session in self.sessions)

    def read_all(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        unread = ["/"]
        while unread:
            path = unread.pop()
            node = self.run(self.sessions[0].get(path))
            if path != "/":
                found[path] = (node.data, node.stat.version, node.stat.czxid, node.stat.ephemeral_owner)
            prefix = "" if path == "/" else path
            unread += [f"{prefix}/{name}" for name in self.run(self.sessions[0].children(path))]
        return found

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def same_as_the_model(self) -> None:
        assert self.read_all() == self.model.nodes

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def acknowledged_zxids_stay_behind(self) -> None:
        assert self.store.zxid >= self.highest

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()


async def _ticks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEmbeddedStoreAgainstModel = StoreMachine.TestCase
