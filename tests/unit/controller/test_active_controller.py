from __future__ import annotations

import asyncio

from braidlog.cluster import paths
from braidlog.cluster.control_requests import (
    UpdateMetadata,
)
from braidlog.controller.requests import (
    NewTopic,
    TopicRef,
)
from braidlog.core import protocol_errors as errors
from support.controller_cluster import T0, Cluster, create, in_cluster, requests_to
from support.controller_harness import ids


@in_cluster(1, 2)
async def test_a_creation_waits_for_the_deletion_of_its_name(cluster: Cluster) -> None:
    await create(cluster, "t", (2,))
    await cluster.controller.delete_topics([TopicRef("t")])
    await create(cluster, "t", (2,), (1,))
    await cluster.quiet()
    await cluster.check_converged()


@in_cluster(1, 2)
async def test_a_name_that_does_not_become_free_in_time_is_refused(cluster: Cluster) -> None:
    await create(cluster, "t", (2,))
    await cluster.quiet()
    cluster.node(2).cut_off = True
    await cluster.controller.delete_topics([TopicRef("t")])
    (refused,) = await cluster.controller.create_topics([NewTopic("t", 1, 1)])
    assert isinstance(refused.error, errors.TopicAlreadyExistsError)
    cluster.node(2).cut_off = False
    await cluster.quiet()
    assert await cluster.node(1).session.children(paths.TOPICS) == []


@in_cluster(1, 2, 3)
async def test_a_broker_that_knows_a_newer_controller_ends_an_old_one(cluster: Cluster) -> None:
    first = cluster.controller
    cluster.node(2).broker.controller_epoch = 3
    await create(cluster, "t", (1, 2))
    await asyncio.sleep(0.1)
    assert not first.active
    await cluster.quiet()
    # A new election each time, until the epoch is new to everyone.
    assert (await cluster.node(1).session.get(paths.CONTROLLER_EPOCH)).data == b"3"
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_the_queue_of_a_broker_is_dropped_with_its_epoch(cluster: Cluster) -> None:
    cluster.node(3).cut_off = True
    await create(cluster, "t", (3,), (3,))
    await cluster.quiet()
    cluster.node(3).kill()
    cluster.node(3).cut_off = False
    await cluster.quiet()
    await cluster.start(3)
    await cluster.quiet()
    stale = [request for request in requests_to(cluster, 3) if request.broker_epoch != cluster.node(3).broker.epoch]
    since = [request for request in requests_to(cluster, 3) if request.broker_epoch == cluster.node(3).broker.epoch]
    assert all(isinstance(request, UpdateMetadata) for request in stale)
    assert isinstance(since[0], UpdateMetadata)
    await cluster.check_converged()
    assert ids(3) == cluster.node(1).broker.metadata[T0].isr
