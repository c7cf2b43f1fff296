from __future__ import annotations

from braidlog.cluster.control_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from braidlog.controller.broker_requests import parts, requests_of
from braidlog.controller.plan import RequestBatch, RoleChange, Stop
from braidlog.core.types import BrokerId, TopicPartition
from support.controller_cluster import T0, Cluster, create, in_cluster, requests_to
from support.controller_harness import context, ids, partition, topic


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


def places(name: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(name, index) for index in range(count)]


def test_a_small_batch_stays_one() -> None:
    batch = RequestBatch(roles=[RoleChange(where, ids(1)) for where in places("t", 700)], metadata=places("u", 300))
    assert list(parts(batch)) == [batch]


def test_a_large_batch_is_cut_between_topics() -> None:
    names = [f"t{number}" for number in range(40)]
    roles = [RoleChange(where, ids(1)) for name in names[:20] for where in places(name, 100)]
    metadata = [where for name in names[10:] for where in places(name, 100)]
    batch = RequestBatch(roles, metadata, brokers_changed=True, metadata_to=ids(1, 2))
    first, *cut = parts(batch)
    # Who is alive comes first, and once.
    assert first == RequestBatch(brokers_changed=True, metadata_to=ids(1, 2))
    assert not any(each.brokers_changed for each in cut)
    assert [role for each in cut for role in each.roles] == roles
    assert sorted(where for each in cut for where in each.metadata) == sorted(metadata)
    assert all(len(each.roles) + len(each.metadata) <= 1_000 and each.metadata_to == ids(1, 2) for each in cut)
    for name in names:
        told = [
            each
            for each in cut
            if name in {where.topic for where in (*(role.where for role in each.roles), *each.metadata)}
        ]
        assert len(told) == 1, "nobody sees half of a topic"


def test_a_large_topic_has_its_logs_before_anyone_hears_of_it_and_is_announced_as_a_whole() -> None:
    large = topic("t", *[partition(1, (1,), (1,))] * 2_500)
    known = context(large, brokers={1: None, 2: None})
    where = places("t", 2_500)
    batch = RequestBatch([RoleChange(each, ids(1)) for each in where])
    told = [request for part in parts(batch) for request in requests_of(known, BrokerId(1), part)]
    assert [(broker, type(request)) for broker, request in told] == [
        (1, LeaderAndIsr), (1, LeaderAndIsr), (1, LeaderAndIsr), (1, UpdateMetadata), (2, UpdateMetadata)
    ]  # fmt: skip
    assert [len(request.partitions) for _, request in told] == [1_000, 1_000, 500, 2_500, 2_500]


def test_a_large_topic_leaves_the_metadata_before_it_stops_and_stops_before_it_is_deleted() -> None:
    where = places("t", 1_500)
    stops = [Stop(BrokerId(1), each, delete) for each in where for delete in (False, True)]
    known = context(topic("t", *[partition(1, (1,), (1,))] * 1_500))
    batch = RequestBatch(metadata=where, stops=stops)
    told = [request for part in parts(batch) for _, request in requests_of(known, BrokerId(1), part)]
    assert isinstance(told[0], UpdateMetadata)
    stopped = [request for request in told[1:] if isinstance(request, StopReplica)]
    assert len(stopped) == len(told) - 1
    assert [(len(request.partitions), {each.delete for each in request.partitions}) for request in stopped] == [
        (1_000, {False}), (500, {False}), (1_000, {True}), (500, {True})
    ]  # fmt: skip
