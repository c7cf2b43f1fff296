from __future__ import annotations

import pytest

from braidlog.cluster.control_requests import (
    LeaderAndIsr,
)
from braidlog.controller.requests import (
    PartitionChange,
    Reassignment,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.types import BrokerId
from support.controller_cluster import T0, Cluster, create, in_cluster, isr_change, requests_to, state


@in_cluster(1, 2, 3)
async def test_what_alter_partition_refuses(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    epoch = cluster.node(2).broker.epoch

    async def error(change: PartitionChange, broker_epoch: int = -1) -> object:
        (result,) = await cluster.controller.alter_partition(BrokerId(2), broker_epoch, [change])
        return type(result.error)

    assert await error(isr_change(cluster, (2,), leader_epoch=-1)) is errors.FencedLeaderEpochError
    assert await error(isr_change(cluster, (2,), leader_epoch=7)) is errors.NotControllerError
    assert await error(isr_change(cluster, (2,), partition_epoch=-1)) is errors.InvalidUpdateVersionError
    assert await error(isr_change(cluster, (2,), recovery_state=1)) is errors.InvalidRequestError
    assert await error(isr_change(cluster, (3,))) is errors.InvalidRequestError
    assert await error(isr_change(cluster, (2,), epoch=epoch)) is type(None)
    assert await error(isr_change(cluster, (2, 3), epoch=epoch)) is errors.IneligibleReplicaError
    # The same again, as if the answer had been lost.
    assert await error(isr_change(cluster, (2,), partition_epoch=0)) is type(None)
    with pytest.raises(errors.StaleBrokerEpochError):
        await error(isr_change(cluster, (2, 3)), epoch - 1)
    assert await error(isr_change(cluster, (2, 3)), epoch + 100) is type(None)
    cluster.node(3).kill()
    await cluster.quiet()
    assert await error(isr_change(cluster, (2, 3))) is errors.IneligibleReplicaError
    assert state(cluster) == (2, 1, (2,))


@in_cluster(1, 2, 3)
async def test_a_reassignment_moves_a_replica(cluster: Cluster) -> None:
    await create(cluster, "t", (2,))
    await cluster.quiet()
    since = len(cluster.sent)
    (started,) = await cluster.controller.alter_reassignments([Reassignment(T0, (3,))])
    assert started.error is None
    await cluster.quiet()
    roles = [request for request in requests_to(cluster, 3, since) if isinstance(request, LeaderAndIsr)]
    assert [each.is_new for each in roles[0].partitions] == [True]
    assert state(cluster) == (2, 1, (2,))
    (grown,) = await cluster.controller.alter_partition(BrokerId(2), -1, [isr_change(cluster, (2, 3))])
    assert grown.error is None
    assert grown.info is not None
    assert (grown.info.leader_epoch, grown.info.isr) == (1, (2, 3))
    await cluster.quiet()
    assert state(cluster) == (3, 2, (3,))
    assert cluster.controller.list_reassignments(None) == []
    assert T0 not in cluster.node(2).broker.logs
    await cluster.check_converged()
