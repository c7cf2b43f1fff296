"""Transactions from the program's side: calls that block its thread, and the scope that ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

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
from braidlog.client.producer.transactions.states import State
from braidlog.client.settings import PRODUCER, Settings
from braidlog.core import protocol_errors as errors
from support.transaction_fakes import HERE, FakeBatch, FakeCluster, FakeIdentity, FakeRecords, until


class Refreshing:
    """Metadata that has everything."""

    async def refreshed(self) -> None:
        return


class Desk:
    """A producer's transactions with an engine of their own."""

    def __init__(self) -> None:
        self.engine = Engine("producer")
        self.cluster = FakeCluster()
        self.records = FakeRecords()
        given = {"transactional.id": "tid", "max.block.ms": 10_000, "retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
        self.transactions = BlockingTransactions(
            Settings.of(PRODUCER, given),
            self.engine,
            cast(Any, self.cluster),
            cast(Any, Refreshing()),
            FakeIdentity(),
            self.records,
            lambda: None,
        )

    def send(self, partition: int = 0) -> None:
        self.transactions.on_first_record("t", partition)
        self.engine.run(self._added(partition), 10)

    async def _added(self, partition: int) -> None:
        await until(lambda: self.transactions.may_send("t", partition))

    def on_engine(self, call: Callable[..., object], *arguments: Any) -> None:
        async def called() -> None:
            call(*arguments)

        self.engine.run(called(), 10)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.engine.close()


def test_a_whole_course(desk: Desk) -> None:
    calls = desk.transactions
    calls.init_transactions()
    calls.begin_transaction()
    desk.send()
    calls.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, "g")
    calls.commit_transaction()
    calls.begin_transaction()
    desk.send()
    calls.abort_transaction()
    assert desk.cluster.asked == [
        "init",
        "add partitions",
        "add offsets",
        "commit offsets",
        "end",
        "add partitions",
        "end",
    ]


def test_a_timeout_says_why_and_the_call_may_be_repeated(desk: Desk) -> None:
    desk.cluster.fail("init", errors.ConcurrentTransactionsError.code)
    held = desk.cluster.hold("init")
    desk.on_engine(held.set)
    desk.transactions.init_transactions()
    desk.transactions.begin_transaction()
    desk.send()
    desk.on_engine(desk.cluster.hold, "end")
    with pytest.raises(RequestTimeout, match=r"commit_transaction\(\) was not done within 0\.05 s.*call it again"):
        desk.transactions.commit_transaction(0.05)
    with pytest.raises(TransactionStateError, match="its outcome is not known"):
        desk.transactions.abort_transaction()
    desk.on_engine(desk.cluster.held["end"].set)
    desk.transactions.commit_transaction()
    assert desk.cluster.asked.count("end") == 1


def test_the_reason_for_the_wait_is_told(desk: Desk) -> None:
    desk.cluster.fail("init", *[errors.CoordinatorLoadInProgressError.code] * 100_000)
    with pytest.raises(RequestTimeout, match="COORDINATOR_LOAD_IN_PROGRESS"):
        desk.transactions.init_transactions(0.05)


def test_no_event_loop_is_blocked(desk: Desk) -> None:
    async def program() -> None:
        with pytest.raises(TransactionStateError, match=r"await producer\.init_transactions_async\(\) instead"):
            desk.transactions.init_transactions()

    asyncio.run(program())
    assert desk.cluster.asked == []


def test_closing_ends_who_waits(desk: Desk) -> None:
    desk.cluster.hold("init")
    desk.engine.loop.call_later(0.05, desk.engine.close)
    with pytest.raises(ClosedError):
        desk.transactions.init_transactions()


# The scope


def begun(desk: Desk) -> Desk:
    desk.transactions.init_transactions()
    return desk


def test_a_scope_commits(desk: Desk) -> None:
    with begun(desk).transactions.scope():
        assert desk.transactions.state is State.IN_TRANSACTION
        desk.send()
    assert desk.cluster.committed == 1
    assert desk.transactions.state is State.READY


def fall(desk: Desk, *first: Callable[[], object]) -> None:
    """A program that raises within its transaction."""
    with desk.transactions.scope():
        desk.send()
        for call in first:
            call()
        raise ZeroDivisionError


def test_a_scope_aborts_what_raised(desk: Desk) -> None:
    with pytest.raises(ZeroDivisionError):
        fall(begun(desk))
    assert desk.cluster.committed == 0
    assert desk.cluster.asked[-1] == "end"
    with desk.transactions.scope():
        desk.send()
    assert desk.cluster.committed == 1


def test_a_scope_whose_commit_is_refused_aborts(desk: Desk) -> None:
    begun(desk)

    def lose_one() -> None:
        with desk.transactions.scope():
            desk.send()
            desk.on_engine(desk.transactions.on_batch_failed, FakeBatch(), DeliveryTimeoutError("late"))

    with pytest.raises(AbortableError, match="records for t-0 were not written"):
        lose_one()
    assert desk.transactions.state is State.READY
    assert desk.cluster.committed == 0


def test_a_scope_of_a_fenced_producer_leaves_it_at_that(desk: Desk) -> None:
    begun(desk)
    desk.cluster.fail("end", errors.ProducerFencedError.code)
    with pytest.raises(FencedProducerError), desk.transactions.scope():
        desk.send()
    assert desk.cluster.asked.count("end") == 1


def test_an_abort_that_fails_is_noted_on_what_began_it(desk: Desk) -> None:
    begun(desk)
    desk.cluster.fail("end", errors.ProducerFencedError.code)
    with pytest.raises(ZeroDivisionError) as raised:
        fall(desk)
    assert "could not be aborted: another producer" in raised.value.__notes__[0]


def test_a_program_may_end_its_transaction_within_the_scope(desk: Desk) -> None:
    with pytest.raises(ZeroDivisionError):
        fall(begun(desk), desk.transactions.abort_transaction)
    assert desk.cluster.asked.count("end") == 1


def test_a_scope_in_an_event_loop(desk: Desk) -> None:
    begun(desk)

    async def program() -> None:
        with pytest.raises(TransactionStateError, match="async with producer"), desk.transactions.scope():
            pass
        async with desk.transactions.scope():
            desk.send()
        for fails in (ZeroDivisionError, asyncio.CancelledError):
            with pytest.raises(fails):
                await fall_in_loop(fails)
        desk.cluster.fail("end", errors.TransactionAbortableError.code)
        with pytest.raises(AbortableError, match="TRANSACTION_ABORTABLE"):
            await fall_in_loop(None)

    async def fall_in_loop(how: type[BaseException] | None) -> None:
        async with desk.transactions.scope():
            desk.send()
            if how is not None:
                raise how

    asyncio.run(program())
    assert desk.cluster.committed == 1
    assert desk.cluster.asked.count("end") == 5
    assert desk.transactions.state is State.READY
