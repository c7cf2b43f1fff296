"""The way of a transaction through its requests: in both transaction versions, through errors, and back to work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import (
    AbortableError,
    ClosedError,
    DeliveryTimeoutError,
    FencedProducerError,
    NoConnection,
    ProducerFailedError,
    TransactionStateError,
)
from braidlog.client.producer.transactions.states import State
from braidlog.core import protocol_errors as errors
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from support.transaction_fakes import HERE, FakeBatch, Scene, until

OFFSETS = {HERE: OffsetAndMetadata(3)}
GROUP = ConsumerGroupMetadata("g", 1, "m")


def scene(story: Callable[[Scene], Awaitable[None]], *, implicit: bool = False) -> None:
    async def reported() -> None:
        await story(Scene(implicit=implicit))

    asyncio.run(reported())


# Without faults


def test_with_explicit_additions() -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        assert it.identity.adopted == [(7, 0)]
        assert it.manager.produce_at_most == 11
        for _ in range(2):
            it.manager.begin()
            assert it.records.refusal is None
            await it.send("t", 0)
            await it.send("t", 1)
            await it.manager.send_offsets(OFFSETS, GROUP)
            await it.manager.commit()
            assert it.manager.state is State.READY
        once = ["add partitions", "add partitions", "add offsets", "commit offsets", "end"]
        assert it.cluster.asked == ["init", *once, *once]
        assert it.identity.adopted == [(7, 0)], "the epoch stays, and so do the sequences"
        assert it.records.epochs == 2

    scene(story)


def test_with_implicit_ones() -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        assert it.manager.produce_at_most is None
        for _ in range(2):
            it.manager.begin()
            await it.send("t", 0)
            await it.manager.send_offsets(OFFSETS, GROUP)
            await it.manager.commit()
        assert it.cluster.asked == ["init", "commit offsets", "end", "commit offsets", "end"]
        assert it.identity.adopted == [(7, 0), (7, 1), (7, 2)], "each end moves the epoch"

    scene(story, implicit=True)


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_an_empty_transaction_sends_no_request(implicit: bool, commit: bool) -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        it.manager.begin()
        await (it.manager.commit() if commit else it.manager.abort())
        assert it.cluster.asked == ["init"]
        assert it.manager.state is State.READY

    scene(story, implicit=implicit)


@pytest.mark.parametrize("implicit", [False, True])
def test_an_abort_drops_what_was_not_sent_and_goes_on(implicit: bool) -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        await it.manager.abort()
        assert it.cluster.asked == ["end"]
        assert not it.cluster.requests[-1][0].committed
        (dropped,) = it.records.dropped
        assert "its transaction was aborted" in str(dropped)
        it.manager.begin()
        assert it.records.refusal is None

    scene(story, implicit=implicit)


def test_partitions_noted_together_are_added_together() -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        it.manager.begin()
        for partition in range(5):
            it.manager.on_first_record("t", partition)
        await until(lambda: all(it.manager.may_send("t", partition) for partition in range(5)))
        assert it.cluster.asked == ["init", "add partitions"]
        assert it.wakes == 1
        assert not it.manager.may_send("other", 0)

    scene(story)


def test_partitions_noted_while_others_are_added_come_next() -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        it.manager.begin()
        held = it.cluster.hold("add partitions")
        it.manager.on_first_record("t", 0)
        await until(lambda: it.cluster.asked[-1] == "add partitions")
        it.manager.on_first_record("t", 1)
        held.set()
        await until(lambda: it.manager.may_send("t", 1))
        assert it.cluster.asked == ["init", "add partitions", "add partitions"]

    scene(story)


def test_a_commit_waits_for_the_flush_and_for_offsets_under_way() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        held = it.cluster.hold("commit offsets")
        it.records.flushed.clear()
        offsets = asyncio.ensure_future(it.manager.send_offsets(OFFSETS, GROUP))
        await until(lambda: "commit offsets" in it.cluster.asked)
        commit = asyncio.ensure_future(it.manager.commit())
        await until(lambda: it.manager.state is State.COMMITTING)
        assert isinstance(it.records.refusal, TransactionStateError)
        it.records.flushed.set()
        await asyncio.sleep(0)
        assert "end" not in it.cluster.asked
        held.set()
        await asyncio.gather(offsets, commit)
        assert it.cluster.asked[-2:] == ["commit offsets", "end"]

    scene(story)


# Misuse


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda it: it.manager.initialise(), "it was called before"),
        (lambda it: it.manager.commit(), "no transaction is open"),
        (lambda it: it.manager.abort(), "no transaction is open"),
        (lambda it: it.manager.send_offsets(OFFSETS, GROUP), "no transaction is open"),
    ],
)
def test_a_call_at_the_wrong_time_changes_nothing(misuse: Callable[[Scene], Awaitable[None]], message: str) -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        with pytest.raises(TransactionStateError, match=message):
            await misuse(it)
        assert it.manager.state is State.READY

    scene(story)


def test_nothing_is_sent_outside_a_transaction() -> None:
    async def story(it: Scene) -> None:
        assert "init_transactions() first" in str(it.records.refusal)
        with pytest.raises(TransactionStateError, match="init_transactions"):
            it.manager.begin()
        await it.begun()
        with pytest.raises(TransactionStateError, match="a transaction is open"):
            it.manager.begin()
        await it.manager.commit()
        assert "begin_transaction() first" in str(it.records.refusal)

    scene(story)


def test_offsets_need_a_group() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        with pytest.raises(TransactionStateError, match=r"consumer\.group_metadata\(\)"):
            await it.manager.send_offsets(OFFSETS, "")
        await it.manager.send_offsets({}, "g")
        assert it.cluster.asked == [], "there was nothing to send"
        await it.manager.send_offsets(OFFSETS, "g")
        request = it.cluster.requests[-1][0]
        assert (request.group_id, request.generation_id, request.member_id) == ("g", -1, "")

    scene(story)


@pytest.mark.parametrize("wrong", [{HERE: "3"}, {HERE: OffsetAndMetadata(-1)}, {"t-0": 3}, {HERE: None}])
def test_wrong_offsets_do_not_cost_the_transaction(wrong: Any) -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        with pytest.raises(UserError, match="is no offset to commit"):
            await it.manager.send_offsets(wrong, GROUP)
        assert it.cluster.asked == []
        await it.manager.send_offsets({("t", 0): 3}, GROUP)  # type: ignore[dict-item]
        await it.manager.commit()
        assert it.cluster.committed == 1

    scene(story)


# Who does not wait


def test_a_call_that_took_too_long_is_called_again() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        held = it.cluster.hold("end")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.manager.commit(), 0.01)
        for other in (it.manager.abort(), it.manager.send_offsets(OFFSETS, GROUP)):
            with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) did not end in time"):
                await other
        with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) did not end in time"):
            it.manager.begin()
        held.set()
        await until(lambda: it.manager.state is State.READY)
        with pytest.raises(TransactionStateError, match="its outcome is not known"):
            it.manager.begin()
        await it.manager.commit()
        assert it.cluster.asked == ["end"], "it was asked for once"
        it.manager.begin()

    scene(story)


def test_a_failure_after_a_timeout_is_raised_by_the_next_call() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        held = it.cluster.hold("end")
        it.cluster.fail("end", errors.ProducerFencedError.code)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.manager.commit(), 0.01)
        held.set()
        await until(lambda: it.manager.state is State.FATAL_ERROR)
        with pytest.raises(FencedProducerError):
            await it.manager.commit()

    scene(story)


def test_initialising_goes_on_after_a_timeout() -> None:
    async def story(it: Scene) -> None:
        held = it.cluster.hold("init")
        it.cluster.fail("init", errors.ConcurrentTransactionsError.code, errors.CoordinatorLoadInProgressError.code)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(it.manager.initialise(), 0.01)
        held.set()
        await it.manager.initialise()
        assert it.cluster.asked == ["init"] * 3
        it.manager.begin()

    scene(story)


# Lost batches


@pytest.mark.parametrize("implicit", [False, True])
def test_a_lost_batch_forbids_the_commit_and_takes_a_new_epoch(implicit: bool) -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.manager.on_batch_failed(FakeBatch(), DeliveryTimeoutError("too late"))
        assert it.manager.state is State.ABORTABLE_ERROR
        assert isinstance(it.records.refusal, AbortableError)
        await until(lambda: len(it.records.dropped) == 1)
        for call in (it.manager.commit(), it.manager.send_offsets(OFFSETS, GROUP)):
            with pytest.raises(AbortableError, match=r"records for t-0 were not written \(too late\); call abort_tran"):
                await call
        await it.manager.abort()
        assert it.cluster.asked == (["end"] if implicit else ["end", "init"])
        assert it.identity.adopted[-1] == (7, 1)
        if not implicit:
            renewing = it.cluster.requests[-1][0]
            assert (renewing.producer_id, renewing.producer_epoch) == (7, 0), "the next of this very epoch"
        it.manager.begin()
        await it.send("t", 0)
        await it.manager.commit()

    scene(story, implicit=implicit)


def test_a_batch_lost_while_the_commit_flushes_fails_the_commit() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.records.while_draining = lambda: it.manager.on_batch_failed(FakeBatch(), errors.MessageTooLargeError())
        with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"):
            await it.manager.commit()
        assert "end" not in it.cluster.asked
        it.records.while_draining = None
        await it.manager.abort()
        assert not it.cluster.requests[-2][0].committed

    scene(story)


def test_what_was_never_sent_needs_no_new_epoch() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.records.while_draining = lambda: it.manager.on_batch_failed(
            FakeBatch(base_sequence=-1), AbortableError("dropped")
        )
        await it.manager.abort()
        assert it.cluster.asked == ["end"]

    scene(story)


def test_an_abort_that_drops_what_may_have_been_written_takes_a_new_epoch() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.records.while_draining = lambda: it.manager.on_batch_failed(FakeBatch(), AbortableError("dropped"))
        await it.manager.abort()
        assert it.cluster.asked == ["end", "init"]
        assert it.manager.state is State.READY

    scene(story)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.ProducerFencedError(), FencedProducerError),
        (errors.TransactionalIdAuthorizationFailedError(), ProducerFailedError),
        (errors.ClusterAuthorizationFailedError(), ProducerFailedError),
    ],
)
def test_some_losses_end_the_producer(error: Exception, kind: type[ProducerFailedError]) -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.manager.on_batch_failed(FakeBatch(), error)
        assert it.manager.state is State.FATAL_ERROR
        await until(lambda: len(it.records.failed) == 1)
        for call in (it.manager.commit(), it.manager.abort(), it.manager.initialise()):
            with pytest.raises(kind):
                await call
        with pytest.raises(kind):
            it.manager.begin()
        assert it.cluster.asked == []

    scene(story)


def test_a_leader_that_knows_a_newer_epoch_leaves_the_verdict_to_the_coordinator() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.manager.on_batch_failed(FakeBatch(), errors.InvalidProducerEpochError())
        assert it.manager.state is State.ABORTABLE_ERROR
        it.cluster.fail("end", errors.ProducerFencedError.code)
        with pytest.raises(FencedProducerError):
            await it.manager.abort()
        assert it.manager.state is State.FATAL_ERROR

    scene(story)


# Errors of the coordinator


def test_a_topic_without_authorization_fails_the_transaction() -> None:
    async def story(it: Scene) -> None:
        await it.manager.initialise()
        it.manager.begin()
        it.cluster.fail("add partitions", errors.TopicAuthorizationFailedError.code)
        it.manager.on_first_record("secret", 0)
        await until(lambda: it.manager.state is State.ABORTABLE_ERROR)
        assert not it.manager.may_send("secret", 0)
        with pytest.raises(AbortableError, match="not authorized for the topic"):
            await it.manager.commit()
        await it.manager.abort()
        assert "end" not in it.cluster.asked, "the coordinator knows of no transaction"
        it.manager.begin()

    scene(story)


@pytest.mark.parametrize("implicit", [False, True])
def test_a_stale_generation_fails_the_transaction(implicit: bool) -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.cluster.fail("commit offsets", errors.IllegalGenerationError.code)
        with pytest.raises(AbortableError, match="the group has rebalanced since"):
            await it.manager.send_offsets(OFFSETS, GROUP)
        await it.manager.abort()
        it.manager.begin()
        await it.manager.send_offsets(OFFSETS, GROUP)
        await it.manager.commit()

    scene(story, implicit=implicit)


def test_a_coordinator_that_forgot_the_producer_gives_it_a_new_epoch() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.cluster.fail("end", *[errors.InvalidProducerIdMappingError.code] * 2)
        with pytest.raises(AbortableError, match="the coordinator has forgotten this producer"):
            await it.manager.commit()
        await it.manager.abort()
        assert it.cluster.asked == ["end", "end", "init"]
        assert it.manager.state is State.READY

    scene(story)


def test_without_renewal_a_lost_batch_ends_the_producer() -> None:
    async def story(it: Scene) -> None:
        it.cluster.versions[22] = 2
        await it.begun()
        it.manager.on_batch_failed(FakeBatch(), DeliveryTimeoutError("too late"))
        with pytest.raises(ProducerFailedError, match=r"too old to give it a new epoch"):
            await it.manager.abort()
        assert it.manager.state is State.FATAL_ERROR

    scene(story)


def test_an_abort_waits_for_an_addition_whose_answer_was_lost() -> None:
    """Else the coordinator would be asked to end what it may, or may not, know of."""

    async def story(it: Scene) -> None:
        await it.manager.initialise()
        it.manager.begin()
        held = it.cluster.hold("add partitions")
        it.cluster.fail("add partitions", NoConnection("gone"), errors.CoordinatorLoadInProgressError.code)
        it.manager.on_first_record("t", 0)
        await until(lambda: "add partitions" in it.cluster.asked)
        abort = asyncio.ensure_future(it.manager.abort())
        await until(lambda: it.manager.state is State.ABORTING)
        held.set()
        await abort
        # Loading: the response says that it was not added, and it is not wanted any more.
        assert it.cluster.asked == ["init", "add partitions", "add partitions"]

    scene(story)


def test_a_bug_ends_the_producer_instead_of_leaving_it_hanging() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.cluster.fail("end", ZeroDivisionError("a bug"))
        with pytest.raises(ProducerFailedError, match="a bug"):
            await it.manager.commit()
        assert it.manager.state is State.FATAL_ERROR

    scene(story)


# Closing


def test_closing_aborts_what_is_open() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.records.refuse(closed := ClosedError("closed"))
        await it.manager.close(1.0)
        assert it.records.refusal is closed, "that is what sends raise"
        assert it.cluster.asked == ["end"]
        assert not it.cluster.requests[-1][0].committed

    scene(story)


def test_closing_does_not_wait_longer_than_it_may() -> None:
    async def story(it: Scene) -> None:
        await it.begun()
        it.cluster.hold("end")
        await it.manager.close(0.01)
        await until(lambda: not it.manager._tasks)
        await (await Scene().begun()).manager.close(0)

    scene(story)


# Any course of events

STEPS = ["begin", "send", "offsets", "commit", "abort", "lose", "drop", "stale", "moved", "gone"]


@settings(max_examples=150, deadline=None)
@given(st.booleans(), st.lists(st.sampled_from(STEPS), max_size=40))
def test_the_transaction_ends_as_its_calls_reported(implicit: bool, steps: list[str]) -> None:
    """Every transaction that was reported committed was ended so, once, after all that was sent; no other was."""

    async def story(it: Scene) -> None:
        await it.manager.initialise()
        committed = 0
        partition = 0
        for step in steps:
            try:
                if step == "begin":
                    it.manager.begin()
                elif step == "send" and it.records.refusal is None:
                    partition += 1
                    await it.send("t", partition)
                elif step == "offsets":
                    await it.manager.send_offsets({TopicPartition("s", 0): OffsetAndMetadata(partition)}, "g")
                elif step == "commit":
                    lost = it.manager.state is State.ABORTABLE_ERROR
                    started = it.manager._started
                    await it.manager.commit()
                    assert not lost
                    committed += started
                elif step == "abort":
                    await it.manager.abort()
                elif step == "lose" and it.manager.state is State.IN_TRANSACTION:
                    it.manager.on_batch_failed(FakeBatch(), DeliveryTimeoutError("late"))
                elif step == "drop" and it.manager.state is State.IN_TRANSACTION:
                    it.manager.on_batch_failed(FakeBatch(base_sequence=-1), DeliveryTimeoutError("late"))
                elif step == "stale":
                    it.cluster.faults["commit offsets"] = deque([errors.IllegalGenerationError.code])
                elif step == "moved":
                    it.cluster.faults["end"] = deque([errors.NotCoordinatorError.code])
                elif step == "gone":
                    it.cluster.faults["end"] = deque([NoConnection("gone")])
            except (TransactionStateError, AbortableError):
                pass
            assert it.manager.state in (State.READY, State.IN_TRANSACTION, State.ABORTABLE_ERROR)
            assert (it.records.refusal is None) == (it.manager.state is State.IN_TRANSACTION)
        # One that was answered with NOT_COORDINATOR, or not at all, was asked again, and counts once.
        assert it.cluster.committed == committed
        assert it.cluster.epoch == it.identity.adopted[-1][1], "the epoch in use is the coordinator's"

    scene(story, implicit=implicit)
