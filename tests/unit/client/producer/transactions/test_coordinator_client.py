"""What each error of each request leads to: another try, another coordinator, an abort, or the end."""

from __future__ import annotations

import asyncio

import pytest

from braidlog.client.errors import (
    NoConnection,
    RequestTimeout,
)
from braidlog.client.producer.transactions.coordinator_client import TransactionCoordinatorClient
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from support.transaction_fakes import HERE, FakeCluster, until
from support.transaction_requests import ASKED, ME


def coordinator_of(cluster: FakeCluster) -> TransactionCoordinatorClient:
    return TransactionCoordinatorClient("tid", cluster, timeout_ms=60_000, pauses_s=(0.0, 0.0))


def ask(cluster: FakeCluster, name: str) -> None:
    asyncio.run(_ask(cluster, name))


async def _ask(cluster: FakeCluster, name: str) -> None:
    await ASKED[name](coordinator_of(cluster))


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


def test_a_coordinator_is_looked_for_until_it_is_available() -> None:
    cluster = FakeCluster()
    cluster.fail("find", errors.CoordinatorNotAvailableError.code, NoConnection("gone"))
    ask(cluster, "init")
    assert cluster.finds == ["tid"] * 3


def test_a_coordinator_that_is_long_in_writing_markers_is_asked_on_and_on() -> None:
    cluster = FakeCluster()
    cluster.fail("add partitions", *[errors.ConcurrentTransactionsError.code] * 1100)
    ask(cluster, "add partitions")
    assert len(cluster.asked) == 1101


def test_a_coordinator_is_called_where_it_was_said_to_be() -> None:
    """Metadata may not name it yet, or name the place that it has left."""
    cluster = FakeCluster()
    ask(cluster, "init")
    assert cluster.learnt == {1: ("host", 9)}


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
