"""A producer's transactions as programs use them: calls that block, and a scope that commits or aborts by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Protocol

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import AbortableError, ClientError, RequestTimeout, TransactionStateError
from braidlog.client.network.engine import Engine, in_event_loop
from braidlog.client.producer.transactions.states import ABORT, COMMIT, INIT, SEND_OFFSETS, State
from braidlog.client.producer.transactions.transaction_manager import TransactionManager
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.client")


class BlockingTransactions:
    """The calls of a `TransactionManager`, which runs on the engine, for threads and event loops of programs."""

    def __init__(self, manager: TransactionManager, engine: Engine, max_block_s: float) -> None:
        self.manager = manager
        self._engine = engine
        self._max_block_s = max_block_s

    @property
    def state(self) -> State:
        return self.manager.state

    def init_transactions(self, timeout_s: float | None = None) -> None:
        """Take over the transactional id: an earlier producer is fenced, and what it left open is aborted."""
        self._block(INIT, self.manager.initialise(), timeout_s)

    def begin_transaction(self) -> None:
        self.manager.begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout_s: float | None = None,
    ) -> None:
        """Commit a consumer's offsets with the transaction; `group` is best `consumer.group_metadata()` (KIP-447)."""
        self._block(SEND_OFFSETS, self.manager.send_offsets(offsets, group), timeout_s)

    def commit_transaction(self, timeout_s: float | None = None) -> None:
        """Flush, then commit; raises AbortableError if anything of the transaction failed."""
        self._block(COMMIT, self.manager.commit(), timeout_s)

    def abort_transaction(self, timeout_s: float | None = None) -> None:
        """Drop what was not sent, and have the rest disregarded."""
        self._block(ABORT, self.manager.abort(), timeout_s)

    def _block(self, call: str, work: Coroutine[Any, Any, None], timeout_s: float | None) -> None:
        timeout_s = self._max_block_s if timeout_s is None else timeout_s
        if in_event_loop():
            work.close()
            raise TransactionStateError(
                f"{call}() would block the event loop that runs here; await producer.{call}_async() instead"
            )
        try:
            self._engine.run(work, timeout_s)
        except RequestTimeout as late:
            reason = f" ({self.manager.last_problem})" if self.manager.last_problem else ""
            raise RequestTimeout(
                f"{call}() was not done within {timeout_s:g} s{reason}; it goes on: "
                "call it again to wait for it, or close the producer"
            ) from late

    # In an event loop of the program's

    async def init_transactions_async(self) -> None:
        await self._on_engine(self.manager.initialise())

    async def send_offsets_to_transaction_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: ConsumerGroupMetadata | str
    ) -> None:
        await self._on_engine(self.manager.send_offsets(offsets, group))

    async def commit_transaction_async(self) -> None:
        await self._on_engine(self.manager.commit())

    async def abort_transaction_async(self) -> None:
        await self._on_engine(self.manager.abort())

    async def _on_engine(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._engine.loop))

    def scope(self) -> TransactionScope:
        return TransactionScope(self)


class ScopedTransactions(Protocol):
    """What a scope uses of a producer's transactions."""

    @property
    def state(self) -> State: ...
    def begin_transaction(self) -> None: ...
    def commit_transaction(self) -> None: ...
    def abort_transaction(self) -> None: ...
    async def commit_transaction_async(self) -> None: ...
    async def abort_transaction_async(self) -> None: ...


class TransactionScope:
    """`with producer.transaction():` begins, and commits at the end; if anything is raised within, it aborts.

    In an event loop: `async with`. What was raised goes on its way. A commit that times out is left to the program,
    which may call it again.
    """

    def __init__(self, calls: ScopedTransactions) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        if in_event_loop():
            raise TransactionStateError(
                "the end of a transaction would block the event loop that runs here; "
                "write `async with producer.transaction():`"
            )
        self._calls.begin_transaction()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            try:
                self._calls.commit_transaction()
            except AbortableError as error:
                self._abort_after(error)
                raise
        elif self._is_open():
            self._abort_after(problem)

    def _is_open(self) -> bool:
        return self._calls.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    def _abort_after(self, problem: BaseException) -> None:
        try:
            self._calls.abort_transaction()
        except ClientError as worse:
            _note(problem, worse)

    async def __aenter__(self) -> None:
        self._calls.begin_transaction()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None:
            try:
                await self._calls.commit_transaction_async()
            except AbortableError as error:
                await self._abort_async_after(error)
                raise
        elif self._is_open():
            await self._abort_async_after(problem)

    async def _abort_async_after(self, problem: BaseException) -> None:
        try:
            await self._calls.abort_transaction_async()
        except ClientError as worse:
            _note(problem, worse)


def _note(problem: BaseException, worse: ClientError) -> None:
    """The program has to see the first error; the second is a note to it."""
    problem.add_note(f"and the transaction could not be aborted: {worse}")
    log.warning("a transaction could not be aborted: %s", worse)
