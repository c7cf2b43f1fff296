"""What each error of each request leads to: another try, another coordinator, an abort, or the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import (
    AbortableError,
    AuthenticationFailed,
    FencedProducerError,
    NoConnection,
    ProducerFailedError,
    RequestTimeout,
)
from braidlog.client.producer.transactions.coordinator_client import EpochBumpRequired, TransactionCoordinatorClient
from braidlog.client.producer.transactions.requests import ProducerIdAndEpoch
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError, UnsupportedVersionError
from support.transaction_fakes import HERE, FakeCluster, until

GROUP = ConsumerGroupMetadata("g", 5, "member", "instance")
ME = ProducerIdAndEpoch(7, 0)
Ask = Callable[[TransactionCoordinatorClient], Awaitable[object]]
ASKED: dict[str, Ask] = {
    "init": lambda coordinator: coordinator.initialise(ME),
    "add partitions": lambda coordinator: coordinator.add_partitions(ME, {HERE: None}, lambda: True),
    "add offsets": lambda coordinator: coordinator.add_group(ME, "g", lambda: True),
    "commit offsets": lambda coordinator: coordinator.commit_offsets(
        ME, GROUP, {HERE: OffsetAndMetadata(3, "m", 2)}, lambda: True
    ),
    "end": lambda coordinator: coordinator.end(ME, True),
}
RETRIED, FOUND_AGAIN, ABORTED, RENEWED, ENDED = "retried", "found again", "aborted", "renewed", "ended"
EVERYWHERE: dict[type[ProtocolError], str] = {
    errors.CoordinatorNotAvailableError: FOUND_AGAIN,
    errors.NotCoordinatorError: FOUND_AGAIN,
    errors.CoordinatorLoadInProgressError: RETRIED,
    errors.ConcurrentTransactionsError: RETRIED,
    errors.ProducerFencedError: ENDED,
    errors.InvalidProducerEpochError: ENDED,
    errors.TransactionalIdAuthorizationFailedError: ENDED,
}
LATER = {
    errors.TransactionAbortableError: ABORTED,
    errors.UnknownProducerIdError: RENEWED,
    errors.InvalidProducerIdMappingError: RENEWED,
}
# By request, as the Java producer of 3.9 takes them; each line of `EVERYWHERE` holds for all.
EXPECTED: dict[str, dict[type[ProtocolError], str]] = {
    "init": {
        errors.ClusterAuthorizationFailedError: ENDED,
        errors.InvalidTransactionTimeoutError: ENDED,
        errors.UnknownServerError: ENDED,
    },
    "add partitions": {
        **LATER,
        errors.UnknownTopicOrPartitionError: RETRIED,
        errors.OperationNotAttemptedError: RETRIED,
        errors.TopicAuthorizationFailedError: ABORTED,
        errors.InvalidTxnStateError: ENDED,
        errors.UnknownServerError: ABORTED,
    },
    "add offsets": {
        **LATER,
        errors.GroupAuthorizationFailedError: ABORTED,
        errors.InvalidTxnStateError: ENDED,
        errors.UnknownServerError: ENDED,
    },
    "commit offsets": {
        **LATER,
        errors.UnknownTopicOrPartitionError: RETRIED,
        errors.RequestTimedOutError: FOUND_AGAIN,
        errors.GroupAuthorizationFailedError: ABORTED,
        errors.UnknownMemberIdError: ABORTED,
        errors.IllegalGenerationError: ABORTED,
        errors.FencedInstanceIdError: ABORTED,
        errors.UnsupportedForMessageFormatError: ENDED,
        errors.UnknownServerError: ENDED,
    },
    "end": {**LATER, errors.InvalidTxnStateError: ENDED, errors.UnknownServerError: ENDED},
}
CASES = [(name, error, outcome) for name, own in EXPECTED.items() for error, outcome in {**EVERYWHERE, **own}.items()]


def coordinator_of(cluster: FakeCluster) -> TransactionCoordinatorClient:
    return TransactionCoordinatorClient("tid", cluster, cluster.refresh, timeout_ms=60_000, pauses_s=(0.0, 0.0))


def ask(cluster: FakeCluster, name: str) -> None:
    asyncio.run(_ask(cluster, name))


async def _ask(cluster: FakeCluster, name: str) -> None:
    await ASKED[name](coordinator_of(cluster))


@pytest.mark.parametrize(("name", "error", "outcome"), CASES, ids=[f"{name}-{error.name}" for name, error, _ in CASES])
def test_each_error_has_its_consequence(name: str, error: type[ProtocolError], outcome: str) -> None:
    cluster = FakeCluster()
    cluster.fail(name, error.code, error.code)
    if outcome in (RETRIED, FOUND_AGAIN):
        ask(cluster, name)
        assert cluster.asked == [name] * 3
        assert len(cluster.finds) == (3 if outcome == FOUND_AGAIN else 1)
        return
    expected = {ABORTED: AbortableError, RENEWED: EpochBumpRequired, ENDED: ProducerFailedError}[outcome]
    with pytest.raises(expected) as refused:
        ask(cluster, name)
    assert cluster.asked == [name]
    if isinstance(refused.value, FencedProducerError):
        assert error in (errors.ProducerFencedError, errors.InvalidProducerEpochError)
        assert "another producer with transactional id tid has taken over" in str(refused.value)
    else:
        assert error.name in str(refused.value)
    advice = "abort_transaction()" if outcome in (ABORTED, RENEWED) else "close this producer"
    assert advice in str(refused.value)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("lost", [NoConnection("gone"), RequestTimeout("late")], ids=["gone", "late"])
def test_a_lost_answer_is_asked_for_again(name: str, lost: Exception) -> None:
    cluster = FakeCluster()
    cluster.fail(name, lost)
    ask(cluster, name)
    assert cluster.asked == [name] * 2
    assert len(cluster.finds) == 2, "a broker that did not answer may not be the coordinator any more"


@pytest.mark.parametrize("name", ASKED)
def test_a_connection_that_is_given_up_is_made_again(name: str) -> None:
    """The cluster's addresses may change while one waits for it."""
    cluster = FakeCluster()
    cluster.abandoned = 2
    ask(cluster, name)
    assert cluster.asked == [name]


def test_a_cancelled_task_stays_cancelled() -> None:
    cluster = FakeCluster()

    async def check() -> None:
        cluster.hold("end")
        task = asyncio.ensure_future(_ask(cluster, "end"))
        await until(lambda: cluster.asked == ["end"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(check())


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("problem", [AuthenticationFailed("no"), UnsupportedVersionError("too old")])
def test_an_error_that_retries_do_not_help_ends_the_producer(name: str, problem: Exception) -> None:
    cluster = FakeCluster()
    cluster.fail(name, problem)
    with pytest.raises(ProducerFailedError, match="is not possible"):
        ask(cluster, name)


def test_a_coordinator_is_looked_for_until_it_is_available() -> None:
    cluster = FakeCluster()
    cluster.fail("find", errors.CoordinatorNotAvailableError.code, NoConnection("gone"))
    ask(cluster, "init")
    assert cluster.finds == ["tid"] * 3


def test_missing_authorization_for_id_or_group_fails_at_once() -> None:
    cluster = FakeCluster()
    cluster.fail("find", errors.TransactionalIdAuthorizationFailedError.code)
    with pytest.raises(ProducerFailedError, match="not authorized for the transactional id"):
        ask(cluster, "init")
    cluster.fail("find", errors.GroupAuthorizationFailedError.code)
    with pytest.raises(AbortableError, match="not authorized for the group"):
        ask(cluster, "commit offsets")


def test_an_old_broker_is_asked_in_its_own_versions() -> None:
    cluster = FakeCluster()
    cluster.versions.update({10: 1, 22: 1})

    async def check() -> None:
        coordinator = coordinator_of(cluster)
        await coordinator.initialise(ProducerIdAndEpoch())
        assert not coordinator.can_renew
        cluster.fail("end", errors.UnknownProducerIdError.code)
        with pytest.raises(ProducerFailedError):
            await coordinator.end(ME, False)

    asyncio.run(check())
    assert cluster.finds == ["tid"]


def test_a_coordinator_that_metadata_does_not_know_yet() -> None:
    cluster = FakeCluster()
    cluster.known = set()
    ask(cluster, "init")
    assert cluster.known


@pytest.mark.parametrize(
    ("name", "error", "still_asked"),
    [
        ("add partitions", errors.UnknownTopicOrPartitionError, 1),
        ("add offsets", errors.ConcurrentTransactionsError, 1),
    ],
)
def test_what_is_no_longer_wanted_ends_with_a_definite_answer(
    name: str, error: type[ProtocolError], still_asked: int
) -> None:
    """Not before: after a lost answer the coordinator may have done it."""
    cluster = FakeCluster()
    cluster.fail(name, NoConnection("gone"), error.code, error.code)

    async def check() -> bool:
        coordinator = coordinator_of(cluster)
        if name == "add offsets":
            return await coordinator.add_group(ME, "g", lambda: False)
        return await coordinator.add_partitions(ME, {HERE: None}, lambda: False)

    assert not asyncio.run(check())
    assert len(cluster.asked) == 1 + still_asked


@pytest.mark.parametrize("implicit", [False, True])
def test_versions_go_by_the_transaction_version(implicit: bool) -> None:
    cluster = FakeCluster(implicit=implicit)

    async def check() -> None:
        coordinator = coordinator_of(cluster)
        await coordinator.initialise(ProducerIdAndEpoch())
        assert not coordinator.is_implicit, "only between transactions"
        coordinator.settle_version()
        await coordinator.add_partitions(ME, {HERE: None}, lambda: True)
        await coordinator.commit_offsets(ME, GROUP, {HERE: OffsetAndMetadata(3, "m", 2)}, lambda: True)
        assert await coordinator.end(ME, True) == (ProducerIdAndEpoch(7, 1) if implicit else ME)

    asyncio.run(check())
    assert [version for _, version in cluster.requests] == ([5, 3, 5, 5] if implicit else [5, 3, 4, 4])
    offsets = cluster.requests[2][0]
    assert (offsets.group_id, offsets.generation_id, offsets.member_id, offsets.group_instance_id) == GROUP
    (partition,) = offsets.topics[0].partitions
    assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (3, "m", 2)
