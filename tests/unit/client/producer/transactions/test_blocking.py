"""Transactions from the program's side: calls that block its thread, and the scope that ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.errors import (
    AbortableError,
    ClosedError,
    DeliveryTimeoutError,
    FencedProducerError,
    RequestTimeout,
    TransactionStateError,
)
from braidlog.client.network.engine import Engine
from braidlog.client.producer.transactions.blocking import BlockingTransactions
from braidlog.client.producer.transactions.coordinator_client import TransactionCoordinatorClient
from braidlog.client.producer.transactions.states import State
from braidlog.client.producer.transactions.transaction_manager import TransactionManager
from braidlog.client.settings import PRODUCER, Settings
from braidlog.core import protocol_errors as errors
from support.transaction_fakes import HERE, FakeBatch, FakeCluster, FakeIdentity, FakeRecords, until


class BlockingHarness:
    """A producer's transactions with an engine of their own."""

    def __init__(self) -> None:
        self.engine = Engine("producer")
        self.cluster = FakeCluster()
        self.records = FakeRecords()
        given = {"transactional.id": "tid", "retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
        coordinator = TransactionCoordinatorClient.of(Settings.of(PRODUCER, given), self.cluster)
        self.manager = TransactionManager(
            "tid", self.engine, coordinator, FakeIdentity(), self.records, self.records, lambda: None
        )
        self.transactions = BlockingTransactions(self.manager, self.engine, 10.0)

    def send(self, partition: int = 0) -> None:
        self.manager.on_first_record("t", partition)
        self.engine.run(self._added(partition), 10)

    async def _added(self, partition: int) -> None:
        await until(lambda: self.manager.may_send("t", partition))

    def on_engine(self, call: Callable[..., object], *arguments: Any) -> None:
        async def called() -> None:
            call(*arguments)

        self.engine.run(called(), 10)


@pytest.fixture
def harness() -> Iterator[BlockingHarness]:
    harness = BlockingHarness()
    yield harness
    harness.engine.close()


def test_transactions_are_committed_and_aborted(harness: BlockingHarness) -> None:
    calls = harness.transactions
    calls.init_transactions()
    calls.begin_transaction()
    harness.send()
    calls.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, "g")
    calls.commit_transaction()
    calls.begin_transaction()
    harness.send()
    calls.abort_transaction()
    assert harness.cluster.asked == [
        "init",
        "add partitions",
        "add offsets",
        "commit offsets",
        "end",
        "add partitions",
        "end",
    ]


def test_a_timeout_says_why_and_the_call_may_be_repeated(harness: BlockingHarness) -> None:
    harness.cluster.fail("init", errors.ConcurrentTransactionsError.code)
    held = harness.cluster.hold("init")
    harness.on_engine(held.set)
    harness.transactions.init_transactions()
    harness.transactions.begin_transaction()
    harness.send()
    harness.on_engine(harness.cluster.hold, "end")
    with pytest.raises(RequestTimeout, match=r"commit_transaction\(\) was not done within 0\.05 s.*call it again"):
        harness.transactions.commit_transaction(0.05)
    with pytest.raises(TransactionStateError, match="its outcome is not known"):
        harness.transactions.abort_transaction()
    harness.on_engine(harness.cluster.held["end"].set)
    harness.transactions.commit_transaction()
    assert harness.cluster.asked.count("end") == 1


def test_a_timeout_names_the_last_error(harness: BlockingHarness) -> None:
    harness.cluster.fail("init", *[errors.CoordinatorLoadInProgressError.code] * 100_000)
    with pytest.raises(RequestTimeout, match="COORDINATOR_LOAD_IN_PROGRESS"):
        harness.transactions.init_transactions(0.05)


def test_no_event_loop_is_blocked(harness: BlockingHarness) -> None:
    async def program() -> None:
        with pytest.raises(TransactionStateError, match=r"await producer\.init_transactions_async\(\) instead"):
            harness.transactions.init_transactions()

    asyncio.run(program())
    assert harness.cluster.asked == []


def test_closing_fails_calls_that_wait(harness: BlockingHarness) -> None:
    harness.cluster.hold("init")
    harness.engine.loop.call_later(0.05, harness.engine.close)
    with pytest.raises(ClosedError):
        harness.transactions.init_transactions()


# The scope


def begun(harness: BlockingHarness) -> BlockingHarness:
    harness.transactions.init_transactions()
    return harness


def test_a_scope_commits(harness: BlockingHarness) -> None:
    with begun(harness).transactions.scope():
        assert harness.transactions.state is State.IN_TRANSACTION
        harness.send()
    assert harness.cluster.committed == 1
    assert harness.transactions.state is State.READY


def fall(harness: BlockingHarness, *first: Callable[[], object]) -> None:
    """A program that raises within its transaction."""
    with harness.transactions.scope():
        harness.send()
        for call in first:
            call()
        raise ZeroDivisionError


def test_a_scope_aborts_what_raised(harness: BlockingHarness) -> None:
    with pytest.raises(ZeroDivisionError):
        fall(begun(harness))
    assert harness.cluster.committed == 0
    assert harness.cluster.asked[-1] == "end"
    with harness.transactions.scope():
        harness.send()
    assert harness.cluster.committed == 1


def test_a_scope_whose_commit_is_refused_aborts(harness: BlockingHarness) -> None:
    begun(harness)

    def lose_one() -> None:
        with harness.transactions.scope():
            harness.send()
            harness.on_engine(harness.manager.on_batch_failed, FakeBatch(), DeliveryTimeoutError("late"))

    with pytest.raises(AbortableError, match="records for t-0 were not written"):
        lose_one()
    assert harness.transactions.state is State.READY
    assert harness.cluster.committed == 0


def test_a_scope_of_a_fenced_producer_leaves_it_at_that(harness: BlockingHarness) -> None:
    begun(harness)
    harness.cluster.fail("end", errors.ProducerFencedError.code)
    with pytest.raises(FencedProducerError), harness.transactions.scope():
        harness.send()
    assert harness.cluster.asked.count("end") == 1


def test_an_abort_that_fails_is_noted_on_what_began_it(harness: BlockingHarness) -> None:
    begun(harness)
    harness.cluster.fail("end", errors.ProducerFencedError.code)
    with pytest.raises(ZeroDivisionError) as raised:
        fall(harness)
    assert "could not be aborted: another producer" in raised.value.__notes__[0]


def test_a_program_may_end_its_transaction_within_the_scope(harness: BlockingHarness) -> None:
    with pytest.raises(ZeroDivisionError):
        fall(begun(harness), harness.transactions.abort_transaction)
    assert harness.cluster.asked.count("end") == 1


def test_a_scope_in_an_event_loop(harness: BlockingHarness) -> None:
    begun(harness)

    async def program() -> None:
        with pytest.raises(TransactionStateError, match="async with producer"), harness.transactions.scope():
            pass
        async with harness.transactions.scope():
            harness.send()
        for fails in (ZeroDivisionError, asyncio.CancelledError):
            with pytest.raises(fails):
                await fall_in_loop(fails)
        harness.cluster.fail("end", errors.TransactionAbortableError.code)
        with pytest.raises(AbortableError, match="TRANSACTION_ABORTABLE"):
            await fall_in_loop(None)

    async def fall_in_loop(how: type[BaseException] | None) -> None:
        async with harness.transactions.scope():
            harness.send()
            if how is not None:
                raise how

    asyncio.run(program())
    assert harness.cluster.committed == 1
    assert harness.cluster.asked.count("end") == 5
    assert harness.transactions.state is State.READY
