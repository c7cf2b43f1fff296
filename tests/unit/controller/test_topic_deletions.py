"""What waits for deletions; a store without room for the removal is in test_controller."""

from __future__ import annotations

from braidlog.cluster import paths
from braidlog.controller.requests import NewTopic, TopicRef
from braidlog.core import protocol_errors as errors
from support.controller_cluster import Cluster, create, in_cluster


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
