from __future__ import annotations

import asyncio

import pytest

from braidlog.client.errors import (
    AbortableError,
    AuthenticationFailed,
    FencedProducerError,
    ProducerFailedError,
)
from braidlog.client.producer.transactions.coordinator_client import EpochBumpRequired, TransactionCoordinatorClient
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError, UnsupportedVersionError
from support.transaction_fakes import FakeCluster
from support.transaction_requests import ASKED

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
    return TransactionCoordinatorClient("tid", cluster, timeout_ms=60_000, pauses_s=(0.0, 0.0))


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
@pytest.mark.parametrize("problem", [AuthenticationFailed("no"), UnsupportedVersionError("too old")])
def test_an_error_that_retries_do_not_help_ends_the_producer(name: str, problem: Exception) -> None:
    cluster = FakeCluster()
    cluster.fail(name, problem)
    with pytest.raises(ProducerFailedError, match="is not possible"):
        ask(cluster, name)


def test_missing_authorization_for_id_or_group_fails_at_once() -> None:
    cluster = FakeCluster()
    cluster.fail("find", errors.TransactionalIdAuthorizationFailedError.code)
    with pytest.raises(ProducerFailedError, match="not authorized for the transactional id"):
        ask(cluster, "init")
    cluster.fail("find", errors.GroupAuthorizationFailedError.code)
    with pytest.raises(AbortableError, match="not authorized for the group"):
        ask(cluster, "commit offsets")
