"""A producer's transactions: one at a time, all of its records and offsets or none of them.

    program          init ──▶ begin ──▶ send …, send_offsets … ──▶ commit | abort ──▶ begin …
    coordinator      InitProducerId     AddPartitionsToTxn …       EndTxn
                                        AddOffsetsToTxn
    group                               TxnOffsetCommit
    partitions                          Produce …                  (markers, written by the coordinator)

With transaction.version 2 (KIP-890) the first Produce and TxnOffsetCommit themselves add what they write to, and each
EndTxn moves the epoch; else partitions are added before anything is sent to them, and the epoch moves only after an
abort that lost a batch which a broker may have seen.

All this runs on the engine, but for `begin` and `on_first_record`; programs call it through `blocking.py`. A call whose
caller stopped waiting goes on: the same call again waits for its outcome, any other is refused until that is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import (
    AbortableError,
    ClientError,
    ProducerFailedError,
    TransactionStateError,
)
from braidlog.client.producer.transactions.coordinator_client import EpochBumpRequired, TransactionCoordinatorClient
from braidlog.client.producer.transactions.error_policies import abortable_error, error_of_lost_batch, fatal_error
from braidlog.client.producer.transactions.requests import EXPLICIT_PRODUCE, ProducerIdAndEpoch, offsets_of
from braidlog.client.producer.transactions.states import (
    ABORT,
    BEGIN,
    COMMIT,
    INIT,
    SEND_OFFSETS,
    State,
    StateMachine,
)
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.client")

_OPEN: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})
_ENDING: Final = frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR})


class Worker(Protocol):
    """The engine, as far as it is needed here."""

    def soon(self, callback: Callable[..., object], *arguments: Any) -> None: ...


class SentBatch(Protocol):
    """A batch, as far as it is needed here."""

    topic: str
    partition: int

    @property
    def base_sequence(self) -> int:
        """-1 for one that was never sent."""
        ...


class TransactionalAccumulator(Protocol):
    """The accumulator, as far as it is needed here."""

    def refuse(self, error: Exception | None) -> None: ...
    def begin_transaction(self) -> None: ...


class UnfinishedRecords(Protocol):
    """`IncompleteBatches`, as far as it is needed here."""

    def abort_unsent(self, error: Exception) -> None: ...
    def fail_all(self, error: Exception) -> None: ...
    async def drained(self) -> None: ...


class ProducerIdHolder(Protocol):
    """`ProducerIdState`, as far as it is needed here."""

    def set_producer_id_and_epoch(self, producer_id: int, epoch: int) -> None: ...


class TransactionManager:
    def __init__(
        self,
        transactional_id: str,
        worker: Worker,
        coordinator: TransactionCoordinatorClient,
        producer_id_state: ProducerIdHolder,
        accumulator: TransactionalAccumulator,
        incomplete_batches: UnfinishedRecords,
        wake_sender: Callable[[], object],
    ) -> None:
        self.transactional_id = transactional_id
        self._worker = worker
        self._coordinator = coordinator
        self._producer_id_state = producer_id_state
        self._accumulator = accumulator
        self._incomplete_batches = incomplete_batches
        self._wake_sender = wake_sender
        self._states = StateMachine(transactional_id)
        self._known = ProducerIdAndEpoch()
        # Why the state is one of the two errors.
        self._problem: ClientError | None = None
        # Of the transaction now: partitions that are in it, and those still to be added.
        self._partitions_in_transaction: set[TopicPartition] = set()
        self._new_partitions: deque[TopicPartition] = deque()
        self._adding = False
        # Whether the coordinator may know of it; if not there is nothing to end.
        self._started = False
        # A batch that a broker may have was given up: only a new epoch sets it apart from what follows.
        self._needs_epoch = False
        # One request at a time to the coordinator, which answers a second one with CONCURRENT_TRANSACTIONS.
        self._turn = asyncio.Lock()
        # The call that is under way, or whose outcome no caller has seen yet.
        self._pending: tuple[str, asyncio.Task[None]] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        accumulator.refuse(TransactionStateError(f"send() is not possible now: {_NO_INIT}"))

    @property
    def state(self) -> State:
        return self._states.now

    @property
    def last_problem(self) -> str:
        """Why the last request to a coordinator had to be repeated; empty after a success."""
        return self._coordinator.last_problem

    # The program's calls

    def begin(self) -> None:
        """From any thread; no request is sent."""
        self._check_pending(BEGIN)
        self._raise_problem()
        self._states.check(BEGIN)
        self._partitions_in_transaction.clear()
        self._new_partitions.clear()
        self._started = self._needs_epoch = False
        self._states.move(State.IN_TRANSACTION)
        self._accumulator.begin_transaction()
        self._accumulator.refuse(None)

    async def initialise(self) -> None:
        await self._once(INIT, self._initialise)

    async def commit(self) -> None:
        await self._once(COMMIT, self._commit)

    async def abort(self) -> None:
        await self._once(ABORT, self._abort)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group: ConsumerGroupMetadata | str
    ) -> None:
        self._check_pending(SEND_OFFSETS)
        self._raise_problem()
        self._states.check(SEND_OFFSETS)
        whose = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        if not whose.group_id:
            raise TransactionStateError("offsets need the group.id of their consumer; give consumer.group_metadata()")
        # A wrong argument must not cost the transaction: it is looked at before anything is done.
        places = offsets_of(offsets)
        if places:
            await asyncio.shield(self._own(SEND_OFFSETS, self._guarded(self._send_offsets(places, whose))))

    async def _once(self, call: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the call, or wait for the one that is under way."""
        self._check_pending(call)
        if self._pending is None:
            if call != ABORT or self.state is State.FATAL_ERROR:
                self._raise_problem()
            self._states.check(call)
            self._pending = call, self._own(call, self._guarded(work()))
        task = self._pending[1]
        # A caller that stops waiting leaves it running; the one that gets the outcome has seen it.
        await asyncio.wait([task])
        self._pending = None
        task.result()

    def _check_pending(self, call: str) -> None:
        pending = self._pending
        if pending is not None and pending[0] != call:
            raise TransactionStateError(
                f"{call}() is not possible now: {pending[0]}() did not end in time and its outcome is not known; "
                "call it again until it returns or raises something else"
            )

    def _own(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.transactional_id}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Retrieved here in case no caller waits any more; the state has kept what it means.
            task.exception()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it; an error moves the state before it is raised."""
        try:
            await work
        except EpochBumpRequired as problem:
            self._needs_epoch = True
            raise self._fail_transaction(problem.error) from problem.error.__cause__
        except AbortableError as problem:
            raise self._fail_transaction(problem) from problem.__cause__
        except ProducerFailedError as problem:
            self._fail(problem)
            raise
        except Exception as problem:
            # A bug, or a name that cannot be sent: what was done and what not is unknown.
            error = fatal_error(self.transactional_id, f"{problem!r}")
            self._fail(error)
            raise error from problem

    # What they do

    async def _initialise(self) -> None:
        self._states.move(State.INITIALIZING)
        await self._take_identity(ProducerIdAndEpoch())

    async def _take_identity(self, known: ProducerIdAndEpoch) -> None:
        """An id and epoch; then everything is as after the first time."""
        async with self._turn:
            self._set_producer_id_and_epoch(await self._coordinator.initialise(known))
        self._coordinator.settle_version()
        self._states.move(State.READY)
        self._refuse(TransactionStateError(f"send() is not possible now: {_NO_BEGIN}"))

    def _set_producer_id_and_epoch(self, identity: ProducerIdAndEpoch) -> None:
        if identity != self._known:
            self._known = identity
            self._producer_id_state.set_producer_id_and_epoch(identity.producer_id, identity.epoch)

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        async with self._turn:
            if not self._is_open():
                return
            if not self._coordinator.is_implicit and not await self._coordinator.add_group(
                self._known, group.group_id, self._is_open
            ):
                return
            self._started = True
            await self._coordinator.commit_offsets(self._known, group, offsets, self._is_open)

    def _is_open(self) -> bool:
        return self.state in _OPEN

    async def _commit(self) -> None:
        self._states.move(State.COMMITTING)
        self._refuse(TransactionStateError("send() is not possible now: the transaction is being committed"))
        await self._incomplete_batches.drained()
        async with self._turn:
            self._raise_problem()
            await self._end(commit=True)

    async def _abort(self) -> None:
        self._states.move(State.ABORTING)
        dropped = AbortableError("the record was not sent: its transaction was aborted")
        self._refuse(TransactionStateError("send() is not possible now: the transaction is being aborted"))
        self._incomplete_batches.abort_unsent(dropped)
        await self._incomplete_batches.drained()
        async with self._turn:
            self._raise_if_failed()
            await self._end(commit=False)

    async def _end(self, commit: bool) -> None:
        """End the transaction at the coordinator, and be ready for the next."""
        try:
            if self._started:
                self._set_producer_id_and_epoch(await self._coordinator.end(self._known, commit))
                # The new epoch came along.
                self._needs_epoch = self._needs_epoch and not self._coordinator.is_implicit
        except EpochBumpRequired:
            if commit:
                raise
            # It knows of no transaction of ours any more, so there is none to abort.
            self._needs_epoch = True
        self._problem = None
        if self._needs_epoch:
            self._states.move(State.INITIALIZING)
            if not self._coordinator.can_renew:
                raise fatal_error(
                    self.transactional_id,
                    "records were lost, and the broker is too old to give it a new epoch (before Kafka 2.5)",
                )
            self._set_producer_id_and_epoch(await self._coordinator.initialise(self._known))
        self._coordinator.settle_version()
        self._states.move(State.READY)
        self._refuse(TransactionStateError(f"send() is not possible now: {_NO_BEGIN}"))

    # For the accumulator and the sender

    @property
    def produce_at_most(self) -> int | None:
        return None if self._coordinator.is_implicit else EXPLICIT_PRODUCE

    def may_send(self, topic: str, partition: int) -> bool:
        return self._coordinator.is_implicit or (topic, partition) in self._partitions_in_transaction

    def on_first_record(self, topic: str, partition: int) -> None:
        """In the program's thread, with the queues locked."""
        if not self._coordinator.is_implicit:
            self._new_partitions.append(TopicPartition(topic, partition))
            self._schedule_add_partitions()

    def _schedule_add_partitions(self) -> None:
        if not self._adding:
            self._adding = True
            self._worker.soon(self._start_adding)

    def _start_adding(self) -> None:
        self._own("add partitions", self._guarded(self._add_partitions()))

    async def _add_partitions(self) -> None:
        try:
            async with self._turn:
                while self._new_partitions and self._is_open():
                    some: dict[TopicPartition, None] = {}
                    while self._new_partitions:
                        some[self._new_partitions.popleft()] = None
                    if await self._coordinator.add_partitions(self._known, some, self._is_open):
                        self._started = True
                        self._partitions_in_transaction.update(some)
                        self._wake_sender()
        finally:
            self._adding = False
            # The program's thread may have added one after the last look, while this task still seemed to run.
            if self._new_partitions and self._is_open():
                self._schedule_add_partitions()

    def on_batch_sent(self, batch: SentBatch) -> None:
        self._started = True

    def on_batch_failed(self, batch: SentBatch, error: Exception) -> None:
        """A batch is lost, and the transaction with it."""
        if batch.base_sequence >= 0:
            self._needs_epoch = True
        if self.state in _OPEN:
            problem = error_of_lost_batch(self.transactional_id, f"{batch.topic}-{batch.partition}", error)
            if isinstance(problem, ProducerFailedError):
                self._fail(problem)
            else:
                self._fail_transaction(problem)

    def on_send_refused(self, error: Exception) -> None:
        """From the thread that sends: a record of this transaction could not be queued."""
        self._worker.soon(self._lose_record, error)

    def _lose_record(self, error: Exception) -> None:
        if self.state in _OPEN:
            problem = abortable_error(f"a record of it was refused ({error})")
            problem.__cause__ = error
            self._fail_transaction(problem)

    # Errors

    def _refuse(self, error: ClientError) -> None:
        # A closing producer refuses everything already, for a better reason.
        if not self._closing:
            self._accumulator.refuse(error)

    def _fail_transaction(self, problem: ClientError) -> ClientError:
        """The transaction can only be aborted; what is not sent yet is not worth sending."""
        if self._states.move_from(_OPEN, State.ABORTABLE_ERROR):
            self._problem = problem
            self._refuse(problem)
            # Later, because the sender may be the caller.
            dropped = abortable_error("another part of it failed before this record was sent")
            dropped.__cause__ = problem
            self._worker.soon(self._incomplete_batches.abort_unsent, dropped)
        elif self.state is not State.ABORTABLE_ERROR:
            # While aborting, or between transactions: no abort can help.
            problem = fatal_error(self.transactional_id, str(problem))
            self._fail(problem)
        return problem

    def _fail(self, problem: ClientError) -> None:
        if self.state is State.FATAL_ERROR:
            return
        self._states.move(State.FATAL_ERROR)
        self._problem = problem
        log.error("%s", problem)
        self._refuse(problem)
        self._worker.soon(self._incomplete_batches.fail_all, problem)

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise self._problem.with_traceback(None)

    def _raise_if_failed(self) -> None:
        if self.state is State.FATAL_ERROR:
            self._raise_problem()

    # The end

    async def close(self, timeout_s: float) -> None:
        """Abort what is open, if there is time, so that readers need not wait for its timeout; then stop."""
        self._closing = True
        try:
            if timeout_s > 0:
                async with asyncio.timeout(timeout_s):
                    await self._end_open()
        except TimeoutError:
            log.warning(
                "transactional id %s: the open transaction was not aborted in time; "
                "the coordinator does it after transaction.timeout.ms",
                self.transactional_id,
            )
        except ClientError as problem:
            log.warning("transactional id %s: closing: %s", self.transactional_id, problem)
        finally:
            for task in list(self._tasks):
                task.cancel()

    async def _end_open(self) -> None:
        if self._pending is not None:
            await asyncio.wait([self._pending[1]])
            self._pending = None
        if self.state in _ENDING:
            await self.abort()


_NO_INIT: Final = "call init_transactions() first, then begin_transaction()"
_NO_BEGIN: Final = "no transaction is open; call begin_transaction() first"
