from __future__ import annotations

from braidlog.cluster.control_requests import (
    LeaderAndIsr,
    UpdateMetadata,
)
from braidlog.core.types import TopicPartition
from support.controller_cluster import T0, Cluster, create, in_cluster, requests_to


@in_cluster(1, 2, 3)
async def test_a_new_topic_is_told_in_order_and_answered_when_the_own_broker_has_it(cluster: Cluster) -> None:
    since = len(cluster.sent)
    await create(cluster, "t", (1, 2), (3, 1))
    assert set(cluster.node(1).broker.roles) == {T0, TopicPartition("t", 1)}
    await cluster.quiet()
    kinds = [type(request) for request in requests_to(cluster, 1, since)]
    assert kinds == [LeaderAndIsr, UpdateMetadata]
    (roles, _) = requests_to(cluster, 2, since)
    assert isinstance(roles, LeaderAndIsr)
    assert [(each.partition, each.is_new) for each in roles.partitions] == [(0, True)]
    assert list(roles.leaders) == [1]
    updates = [request for _, _, request in cluster.sent[since:] if isinstance(request, UpdateMetadata)]
    assert len(updates) == 3
    # Encoded once: all brokers get the same objects.
    assert len({id(update.partitions) for update in updates}) == 1
    await cluster.check_converged()
