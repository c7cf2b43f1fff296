from __future__ import annotations

import asyncio

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.client.errors import (
    ProducerFailedError,
)
from braidlog.client.producer.transactions.coordinator_client import TransactionCoordinatorClient
from braidlog.client.producer.transactions.requests import ProducerIdAndEpoch
from braidlog.core import protocol_errors as errors
from support.transaction_fakes import HERE, FakeCluster

GROUP = ConsumerGroupMetadata("g", 5, "member", "instance")


ME = ProducerIdAndEpoch(7, 0)


def coordinator_of(cluster: FakeCluster) -> TransactionCoordinatorClient:
    return TransactionCoordinatorClient("tid", cluster, timeout_ms=60_000, pauses_s=(0.0, 0.0))


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
