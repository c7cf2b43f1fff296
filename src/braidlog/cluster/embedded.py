"""The coordination store inside the broker's own process: a tree in memory, a journal on disk, one writer thread.

The loop alone touches the tree. A change is checked and applied at once, so the next one is checked against it, and
its encoded form joins the group that the writer thread appends and syncs as one frame. Until that is done the change
is hidden: answers (also refusals that depend on it) and watch events queue in zxid order behind it.

    call -> check, apply -> staged -> [writer thread: append, fdatasync] -> watch events, then the answer
    read -> taken from the tree -----------------------------------------> answered in the same order

Sessions live as long as the process: what an earlier process left behind is removed when the store opens. Those that a
`StoreServer` gives to other processes outlive this one: it opens the store with `keep_ephemerals` and resumes them.

A full disk refuses changes, but not a start: what a starting broker changes (its registration, epochs) and what the
last process left behind is then kept in memory, and written before anything else once there is room. Until then the
store `lags`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, NamedTuple

from braidlog.cluster.journal import encode_frame, encode_transaction
from braidlog.cluster.journal_files import JournalFiles
from braidlog.cluster.recovery import Recovered, recover, take_snapshot
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import Delete, Operation, Outcome, StoreError, StoreFailedError, Watch, WatchEvent
from braidlog.cluster.tree import Transaction, ZnodeTree
from braidlog.cluster.watches import WatchTable
from braidlog.core.clock import Clock
from braidlog.core.errors import is_disk_full

# The journal is folded once it outgrows this and the snapshot: reading both costs at most about twice the snapshot.
_SNAPSHOT_ABOVE: Final = 1 << 20
_SNAPSHOT_ABOVE_AT_CLOSE: Final = 1 << 16
_SESSION_BITS: Final = 16
# How often a store that lags looks whether there is room.
_RETRY_S: Final = 1.0

_log = logging.getLogger("braidlog.cluster.store")


class _Failed(NamedTuple):
    """An append that failed: why, and the state before it, if that is to be gone back to."""

    problem: OSError
    before: Recovered | None


class EmbeddedStore:
    """Open it with `EmbeddedStore.open` (blocking, before or beside the loop); then `connect` gives sessions."""

    def __init__(
        self,
        files: JournalFiles,
        clock: Clock,
        recovered: Recovered,
        executor: Executor | None,
        unwritten: Sequence[Transaction] = (),
    ) -> None:
        self._files = files
        self._clock = clock
        self._executor = executor
        self._owns_executor = executor is None
        self._take(recovered)
        self._watches = WatchTable()
        self._sessions: dict[int, EmbeddedSession] = {}
        # No session that ever wrote can have had such an id: its write raised the zxid that the next opening finds.
        self._last_session = self._tree.zxid << _SESSION_BITS
        # Set while the broker starts: a change for which the disk has no room counts as made all the same.
        self.starting = False
        # Applied and answered but not in the journal; they go into the next frame, before what is staged.
        self._unwritten = list(unwritten)
        self._retry: asyncio.TimerHandle | None = None
        self._failure_logged = False
        self._on_caught_up: list[Callable[[], None]] = []
        self._staged: list[Transaction] = []
        self._writing = False
        self._idle: asyncio.Future[None] | None = None
        self._failure: StoreFailedError | None = None
        self._on_failure: list[Callable[[StoreFailedError], None]] = []
        # In zxid order: what waits for that zxid to be durable.
        self._queue: deque[tuple[int, asyncio.Future[None], list[tuple[Watch, WatchEvent]]]] = deque()
        self._durable = self._tree.zxid
        # Watch events up to this zxid were handed out; only then may reads be answered at once.
        self._delivered = self._tree.zxid

    @classmethod
    def open(
        cls, files: JournalFiles, clock: Clock, executor: Executor | None = None, *, keep_ephemerals: bool = False
    ) -> EmbeddedStore:
        """With `keep_ephemerals` it is the caller who resumes, and ends, the sessions that own some."""
        recovered = recover(files)
        tree = recovered.tree
        if keep_ephemerals:
            return cls(files, clock, recovered, executor)
        left_behind = [Delete(path) for paths in list(tree.ephemerals.values()) for path in paths]
        if not left_behind:
            return cls(files, clock, recovered, executor)
        # Not written for its own sake: should this process write nothing, the next one finds the same.
        transaction, _ = tree.transact(left_behind, tree.zxid + 1, clock.wall_ms(), 0)
        return cls(files, clock, recovered, executor, [transaction])

    @property
    def zxid(self) -> int:
        return self._tree.zxid

    @property
    def tree(self) -> ZnodeTree:
        """For sessions: what to read, in the same step of the loop."""
        return self._tree

    @property
    def watches(self) -> WatchTable:
        return self._watches

    @property
    def failure(self) -> StoreFailedError | None:
        """Set once syncing failed: nothing can be made durable any more."""
        return self._failure

    @property
    def lags(self) -> bool:
        """Whether something was changed that a crash would undo, because the disk has no room."""
        return bool(self._unwritten)

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        """Called whenever a store that lagged has written everything."""
        self._on_caught_up.append(callback)

    def on_failure(self, callback: Callable[[StoreFailedError], None]) -> None:
        """Called once if syncing fails: the broker cannot go on without its store."""
        self._on_failure.append(callback)

    def connect(self) -> EmbeddedSession:
        self._last_session += 1
        return self.resume(self._last_session)

    def resume(self, session_id: int) -> EmbeddedSession:
        """A session that an earlier process has opened; its ephemerals are still there."""
        session = EmbeddedSession(self, session_id, self._clock.monotonic)
        self._sessions[session_id] = session
        self._last_session = max(self._last_session, session_id)
        return session

    async def write_beside(self, name: str, data: bytes) -> None:
        """A small file of the same directory, durable on return; the writer thread alone touches the files."""
        await asyncio.get_running_loop().run_in_executor(self._writer(), self._files.write_whole, name, data)

    async def open_session(self) -> EmbeddedSession:
        """`connect` as a `StoreClient` wants it."""
        return self.connect()

    async def expire(self, session: EmbeddedSession) -> None:
        """Lose a session as a partition from a ZooKeeper would; for tests and simulations."""
        session.lose()
        await self.end_session(session)

    async def end_session(self, session: EmbeddedSession) -> None:
        if self._sessions.pop(session.session_id, None) is None:
            return
        self._watches.forget(session)
        paths = self._tree.ephemerals.get(session.session_id)
        if paths and self._failure is None:
            await self.submit([Delete(path) for path in paths], session.session_id)

    async def close(self, *, end_sessions: bool = True) -> None:
        """End every session, replace a long journal by a snapshot for a quick next start, release the files."""
        for session in list(self._sessions.values()) if end_sessions else ():
            with suppress(StoreFailedError):  # whatever stays is removed when the store opens again
                await session.close()
        while self._writing:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        if self._retry is not None:
            self._retry.cancel()
        if self._failure is None:
            self._failure = StoreFailedError("the embedded store is closed")
            if self._journal_size > _SNAPSHOT_ABOVE_AT_CLOSE:
                try:
                    await asyncio.get_running_loop().run_in_executor(self._writer(), take_snapshot, self._files)
                except OSError as problem:
                    _log.warning("the journal of the embedded store stays as long as it is: %s", problem)
        self._files.close()
        if self._owns_executor and self._executor is not None:
            self._executor.shutdown(wait=False)

    # -- changes and reads, from sessions --

    async def submit(self, operations: Sequence[Operation], session: int) -> list[Outcome]:
        """Apply now, answer once durable; a refusal waits for the changes that it depends on."""
        if self._failure is not None:
            raise self._failure
        tree = self._tree
        try:
            transaction, outcomes = tree.transact(operations, tree.zxid + 1, self._clock.wall_ms(), session)
        except StoreError:
            await self.settled()
            raise
        if not transaction.changes:
            await self.settled()
            return outcomes
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fired = self._watches.fire(transaction.changes)
        self._queue.append((transaction.zxid, answer, fired))
        self._stage(transaction)
        await answer
        return outcomes

    async def settled(self) -> None:
        """Return once everything applied so far is durable and its watch events were handed out."""
        if self._tree.zxid == self._delivered:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((self._tree.zxid, waiter, []))
        await waiter

    # -- group commit --

    def _stage(self, transaction: Transaction) -> None:
        self._staged.append(transaction)
        if not self._writing:
            self._writing = True
            # Not at once: whatever else changes in this round of the loop joins the same frame.
            asyncio.get_running_loop().call_soon(self._write_staged)

    def _write_staged(self) -> None:
        group = self._unwritten + self._staged
        # Without anything new this is one more try to write what lags.
        keep = self.starting or not self._staged
        self._staged = []
        frame = encode_frame([encode_transaction(transaction) for transaction in group])
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._writer(), self._append, frame, self._journal, self._journal_size, keep)
        zxid = self._tree.zxid
        job.add_done_callback(lambda done: self._written(done, zxid, group, len(frame)))

    def _append(self, frame: bytes, journal: str, size: int, keep: bool) -> _Failed | None:
        """In the writer thread. A failed append is taken back; unless a full disk's is to be kept, it never was."""
        try:
            self._files.append(journal, frame)
        except OSError as problem:
            if size:
                self._files.truncate(journal, size)
            elif journal in self._files.names():
                self._files.remove(journal)
            return _Failed(problem, None if keep and is_disk_full(problem) else recover(self._files))
        self._files.sync(journal)
        return None

    def _written(self, job: asyncio.Future[_Failed | None], zxid: int, group: list[Transaction], size: int) -> None:
        problem = job.exception()
        if problem is not None:
            self._failure = StoreFailedError(f"the embedded store cannot sync its journal: {problem}")
            self._abandon(self._failure)
            self._rest()
            for callback in self._on_failure:
                callback(self._failure)
            return
        failed = job.result()
        if failed is None:
            self._journal_size += size
            self._durable = zxid
            self._caught_up()
            self._answer_durable()
        elif failed.before is None:
            if not self._failure_logged:
                _log.error("the embedded store cannot write its journal: %s; free some space", failed.problem)
                self._failure_logged = True
            self._unwritten = group
            self._durable = zxid
            self._answer_durable()
        else:
            for transaction in self._unwritten:
                failed.before.tree.replay(transaction)
            self._take(failed.before)
            self._abandon(StoreFailedError(f"the embedded store cannot write its journal: {failed.problem}"))
        loop = asyncio.get_running_loop()
        if self._unwritten and self._retry is None:
            self._retry = loop.call_later(_RETRY_S, self._write_unwritten)
        loop.call_soon(self._mark_delivered, self._durable)
        if self._journal_size > max(_SNAPSHOT_ABOVE, self._snapshot_size):
            loop.run_in_executor(self._writer(), take_snapshot, self._files).add_done_callback(self._on_snapshot_taken)
        else:
            self._rest()

    def _write_unwritten(self) -> None:
        self._retry = None
        if self._unwritten and not self._writing and self._failure is None:
            self._writing = True
            self._write_staged()

    def _caught_up(self) -> None:
        if not self._unwritten:
            return
        self._unwritten = []
        if self._failure_logged:
            _log.info("the embedded store has written what it could not write before")
            self._failure_logged = False
        for callback in self._on_caught_up:
            callback()

    def _on_snapshot_taken(self, job: asyncio.Future[Recovered]) -> None:
        problem = job.exception()
        if problem is None:
            folded = job.result()
            self._journal, self._journal_size = folded.journal, 0
            self._snapshot_size = folded.snapshot_size
        else:
            self._snapshot_size = self._journal_size * 2  # try again later; the journal itself is sound
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the embedded store could not write a snapshot of its journal", "exception": problem}
            )
        self._rest()

    def _rest(self) -> None:
        """The writer is free: give it what was staged meanwhile."""
        if self._staged and self._failure is None:
            self._write_staged()
            return
        self._writing = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _answer_durable(self) -> None:
        loop = asyncio.get_running_loop()
        queue = self._queue
        while queue and queue[0][0] <= self._durable:
            _, answer, fired = queue.popleft()
            # Answers wake their tasks through the loop's queue, so events must go the same way to stay in order.
            for watch, event in fired:
                loop.call_soon(watch, event)
            if not answer.done():
                answer.set_result(None)

    def _mark_delivered(self, zxid: int) -> None:
        self._delivered = zxid
        self._answer_durable()

    def _abandon(self, problem: StoreFailedError) -> None:
        """Nothing that waited has happened. Watches it took fire all the same: watchers read again and set new ones."""
        loop = asyncio.get_running_loop()
        self._staged = []
        while self._queue:
            _, answer, fired = self._queue.popleft()
            for watch, event in fired:
                loop.call_soon(watch, event)
            if not answer.done():
                answer.set_exception(problem)

    def _take(self, recovered: Recovered) -> None:
        self._tree = recovered.tree
        self._journal = recovered.journal
        self._journal_size = recovered.journal_size
        self._snapshot_size = recovered.snapshot_size
        self._durable = recovered.tree.zxid

    def _writer(self) -> Executor:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="braidlog-store")
        return self._executor
