"""The coordination store inside the broker's own process: a tree in memory, a journal on disk, one writer thread.

The loop alone touches the tree. A change is checked and applied at once, so the next one is checked against it, and
its encoded form joins the group that the writer thread appends and syncs as one frame. Until that is done the change
is hidden: answers (also refusals that depend on it) and watch events queue in zxid order behind it.

    call -> check, apply -> staged -> [writer thread: append, fdatasync] -> watch events, then the answer
    read -> taken from the tree -----------------------------------------> answered in the same order

Sessions live as long as the process: what an earlier process left behind is removed when the store opens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

from braidlog.cluster.journal import encode_frame, encode_transaction
from braidlog.cluster.journal_files import JournalFiles
from braidlog.cluster.recovery import Recovered, fold, recover
from braidlog.cluster.sessions import EmbeddedSession
from braidlog.cluster.store import Delete, Operation, Outcome, StoreError, StoreFailedError, Watch, WatchEvent
from braidlog.cluster.tree import ZnodeTree
from braidlog.cluster.watches import WatchTable
from braidlog.core.clock import Clock

# The journal is folded once it outgrows this and the snapshot: reading both costs at most about twice the snapshot.
_FOLD_ABOVE: Final = 1 << 20
_FOLD_ABOVE_AT_CLOSE: Final = 1 << 16
_SESSION_BITS: Final = 16


class EmbeddedStore:
    """Open it with `EmbeddedStore.open` (blocking, before or beside the loop); then `connect` gives sessions."""

    def __init__(self, files: JournalFiles, clock: Clock, recovered: Recovered, executor: Executor | None) -> None:
        self._files = files
        self._clock = clock
        self._executor = executor
        self._owns_executor = executor is None
        self._take(recovered)
        self._watches = WatchTable()
        self._sessions: dict[int, EmbeddedSession] = {}
        # No session that ever wrote can have had such an id: its write raised the zxid that the next opening finds.
        self._last_session = self._tree.zxid << _SESSION_BITS
        self._staged: list[bytes] = []
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
    def open(cls, files: JournalFiles, clock: Clock, executor: Executor | None = None) -> EmbeddedStore:
        recovered = recover(files)
        tree = recovered.tree
        left_behind = [Delete(path) for paths in list(tree.ephemerals.values()) for path in paths]
        if left_behind:
            transaction, _ = tree.transact(left_behind, tree.zxid + 1, clock.wall_ms(), 0)
            frame = encode_frame([encode_transaction(transaction)])
            files.append(recovered.journal, frame)
            files.sync(recovered.journal)
            size = recovered.journal_size + len(frame)
            recovered = Recovered(tree, recovered.journal, size, recovered.snapshot_size)
        return cls(files, clock, recovered, executor)

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

    def on_failure(self, callback: Callable[[StoreFailedError], None]) -> None:
        """Called once if syncing fails: the broker cannot go on without its store."""
        self._on_failure.append(callback)

    def connect(self) -> EmbeddedSession:
        self._last_session += 1
        session = EmbeddedSession(self, self._last_session)
        self._sessions[session.session_id] = session
        return session

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

    async def close(self) -> None:
        """End every session, fold a long journal so that the next start is quick, release the files."""
        for session in list(self._sessions.values()):
            with suppress(StoreFailedError):  # whatever stays is removed when the store opens again
                await session.close()
        while self._writing:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        if self._failure is None:
            self._failure = StoreFailedError("the embedded store is closed")
            if self._journal_size > _FOLD_ABOVE_AT_CLOSE:
                await asyncio.get_running_loop().run_in_executor(self._writer(), fold, self._files)
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
        self._stage(encode_transaction(transaction))
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

    def _stage(self, encoded: bytes) -> None:
        self._staged.append(encoded)
        if not self._writing:
            self._writing = True
            # Not at once: whatever else changes in this round of the loop joins the same frame.
            asyncio.get_running_loop().call_soon(self._write_staged)

    def _write_staged(self) -> None:
        frame = encode_frame(self._staged)
        self._staged = []
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._writer(), self._append, frame, self._journal, self._journal_size)
        zxid = self._tree.zxid
        job.add_done_callback(lambda done: self._written(done, zxid, len(frame)))

    def _append(self, frame: bytes, journal: str, size: int) -> tuple[Recovered, OSError] | None:
        """In the writer thread. A failed append (a full disk) is taken back and gives the state before it."""
        try:
            self._files.append(journal, frame)
        except OSError as problem:
            if size:
                self._files.truncate(journal, size)
            elif journal in self._files.names():
                self._files.remove(journal)
            return recover(self._files), problem
        self._files.sync(journal)
        return None

    def _written(self, job: asyncio.Future[tuple[Recovered, OSError] | None], zxid: int, size: int) -> None:
        problem = job.exception()
        if problem is not None:
            self._failure = StoreFailedError(f"the embedded store cannot sync its journal: {problem}")
            self._abandon(self._failure)
            self._rest()
            for callback in self._on_failure:
                callback(self._failure)
            return
        reverted = job.result()
        if reverted is not None:
            self._take(reverted[0])
            self._abandon(StoreFailedError(f"the embedded store cannot write its journal: {reverted[1]}"))
        else:
            self._journal_size += size
            self._durable = zxid
            self._answer_durable()
        loop = asyncio.get_running_loop()
        loop.call_soon(self._mark_delivered, self._durable)
        if self._journal_size > max(_FOLD_ABOVE, self._snapshot_size):
            loop.run_in_executor(self._writer(), fold, self._files).add_done_callback(self._folded)
        else:
            self._rest()

    def _folded(self, job: asyncio.Future[Recovered]) -> None:
        problem = job.exception()
        if problem is None:
            folded = job.result()
            self._journal, self._journal_size = folded.journal, 0
            self._snapshot_size = folded.snapshot_size
        else:
            self._snapshot_size = self._journal_size * 2  # try again later; the journal itself is sound
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the embedded store could not fold its journal", "exception": problem}
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
