from __future__ import annotations

from braidlog.cluster import paths, records
from braidlog.cluster.control_requests import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlRequest,
    ControlResponse,
    StopReplica,
    UpdateMetadata,
)
from braidlog.controller.requests import (
    NewTopic,
    Reassignment,
    TopicRef,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.types import BrokerId
from support.controller_cluster import T0, Cluster, create, in_cluster, isr_change, requests_to


@in_cluster(1, 2, 3)
async def test_a_deleted_topic_goes_from_metadata_then_logs_then_store(cluster: Cluster) -> None:
    await create(cluster, "t", (1, 2), (2, 3))
    await cluster.quiet()
    since = len(cluster.sent)
    (deleted,) = await cluster.controller.delete_topics([TopicRef("t")])
    assert deleted.error is None
    assert T0 not in cluster.node(1).broker.metadata
    await cluster.quiet()
    update, stop, delete = requests_to(cluster, 2, since)
    assert isinstance(update, UpdateMetadata)
    assert {each.info.leader for each in update.partitions} == {LEADER_DURING_DELETE}
    assert isinstance(stop, StopReplica)
    assert isinstance(delete, StopReplica)
    assert [(each.leader_epoch, each.delete) for each in stop.partitions] == [(EPOCH_DURING_DELETE, False)] * 2
    assert [each.delete for each in delete.partitions] == [True, True]
    assert not cluster.node(2).broker.logs
    session = cluster.node(1).session
    assert await session.children(paths.TOPICS) == []
    assert await session.children(paths.DELETE_TOPICS) == []
    assert await session.children("/config/topics") == []
    await create(cluster, "t", (1,))
    await cluster.quiet()
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_a_deletion_waits_for_a_dead_broker(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    cluster.node(3).kill()
    await cluster.quiet()
    (deleted,) = await cluster.controller.delete_topics([TopicRef("t")])
    assert deleted.error is None
    await cluster.quiet()
    gauges = cluster.controller.gauges
    assert (gauges.topics_to_delete_count, gauges.topics_ineligible_to_delete_count) == (1, 1)
    assert (gauges.replicas_to_delete_count, gauges.replicas_ineligible_to_delete_count) == (1, 1)
    assert not cluster.node(2).broker.logs
    (refused,) = await cluster.controller.create_topics([NewTopic("t", 1, 1)])
    assert isinstance(refused.error, errors.TopicAlreadyExistsError)
    await cluster.start(3)
    await cluster.quiet()
    assert await cluster.node(1).session.children(paths.DELETE_TOPICS) == []
    assert not cluster.node(3).broker.logs
    assert gauges.topics_to_delete_count == 0
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_an_answer_of_an_earlier_registration_does_not_suspend_a_deletion(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    await cluster.quiet()
    active, broker = cluster.controller._active, cluster.node(3).broker
    assert active is not None
    earlier = active.context.image.brokers[BrokerId(3)]
    cluster.node(3).kill()
    await cluster.quiet()
    await cluster.controller.delete_topics([TopicRef("t")])
    genuine = broker.apply

    def answer_late(request: ControlRequest) -> ControlResponse:
        """What the last life said is decided between the request to this one and its answer."""
        if isinstance(request, StopReplica) and request.partitions[0].delete:
            active.answered(earlier, request, ControlResponse(errors.StaleBrokerEpochError.code))
        return genuine(request)

    broker.apply = answer_late  # type: ignore[method-assign]
    await cluster.start(3)
    await cluster.quiet()
    assert await cluster.node(1).session.children(paths.DELETE_TOPICS) == []
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_the_next_topic_of_a_name_is_not_offline_where_the_log_of_the_last_one_was_lost(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    await cluster.quiet()
    lost = cluster.node(2).broker.failed_logs
    lost.add(T0)
    await cluster.node(2).session.create(paths.LOG_DIR_EVENT, records.encode_log_dir_event(2), sequential=True)
    await cluster.quiet()
    assert cluster.node(1).broker.metadata[T0].offline == (2,)
    # With a disk that was replaced nothing is left to delete.
    lost.clear()
    await cluster.controller.delete_topics([TopicRef("t")])
    await cluster.quiet()
    await create(cluster, "t", (2, 3))
    await cluster.quiet()
    assert cluster.node(2).broker.roles[T0].leader == 2
    assert cluster.node(1).broker.metadata[T0].offline == ()
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_a_deletion_waits_for_a_reassignment(cluster: Cluster) -> None:
    await create(cluster, "t", (2,))
    await cluster.controller.alter_reassignments([Reassignment(T0, (3,))])
    (deleted,) = await cluster.controller.delete_topics([TopicRef("t")])
    assert deleted.error is None
    await cluster.quiet()
    assert T0 in cluster.node(1).broker.metadata
    await cluster.controller.alter_partition(BrokerId(2), -1, [isr_change(cluster, (2, 3))])
    await cluster.quiet()
    assert await cluster.node(1).session.children(paths.TOPICS) == []
    assert not cluster.node(2).broker.logs
    assert not cluster.node(3).broker.logs
    await cluster.check_converged()
