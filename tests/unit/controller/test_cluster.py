"""Controllers of several brokers on one store: what they write and what they tell."""

from __future__ import annotations

import asyncio

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.control_requests import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from braidlog.cluster.records import TopicRecord
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.requests import (
    ConfigChange,
    ConfigChanges,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionChange,
    Reassignment,
    TopicRef,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from support.controller_cluster import Cluster, in_cluster, requests_to
from support.controller_harness import RECORD, ids

T0 = TopicPartition("t", 0)


async def create(cluster: Cluster, name: str, *replicas: tuple[int, ...]) -> None:
    wanted = NewTopic(name, assignments=dict(enumerate(replicas)))
    (result,) = await cluster.controller.create_topics([wanted])
    assert result.error is None


def state(cluster: Cluster, where: TopicPartition = T0) -> tuple[int, int, tuple[int, ...]]:
    info = cluster.controller._require().context.image.partition(where)
    assert info is not None
    return info.leader, info.leader_epoch, info.isr


@in_cluster(1, 2, 3)
async def test_one_of_them_is_the_controller_and_the_others_say_so(cluster: Cluster) -> None:
    assert [node.controller.active for node in cluster.nodes.values()] == [True, False, False]
    with pytest.raises(errors.NotControllerError):
        await cluster.node(2).controller.create_topics([NewTopic("t")])
    with pytest.raises(errors.NotControllerError):
        cluster.node(3).controller.list_reassignments(None)
    assert [node.controller.gauges.active_controller_count for node in cluster.nodes.values()] == [1, 0, 0]
    await cluster.check_converged()


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


@in_cluster(1, 2, 3)
async def test_the_leaders_of_a_broker_that_dies_move(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3), (3, 2))
    await create(cluster, "u", (2,))
    cluster.node(2).kill()
    await cluster.quiet()
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 1)) == (3, 1, (3,))
    assert state(cluster, TopicPartition("u", 0)) == (NO_BROKER, 1, (2,))
    gauges = cluster.controller.gauges
    assert (gauges.offline_partitions_count, gauges.preferred_replica_imbalance_count) == (1, 2)
    assert cluster.node(1).broker.metadata[T0].offline == (2,)
    await cluster.check_converged()
    await cluster.start(2)
    await cluster.quiet()
    assert state(cluster, TopicPartition("u", 0)) == (2, 2, (2,))
    # In sync again only when its leader says so.
    assert state(cluster) == (3, 1, (3,))
    assert gauges.offline_partitions_count == 0
    await cluster.check_converged()


@in_cluster(1, 2)
async def test_a_broker_that_bounced_between_two_looks_failed_and_then_started(cluster: Cluster) -> None:
    await create(cluster, "t", (2,))
    await cluster.quiet()
    since = len(cluster.sent)
    node = cluster.node(2)
    other = cluster.store.connect()
    # One transaction of the store: the controller sees only the new registration.
    deleted = asyncio.ensure_future(cluster.store.expire(node.session))
    created = asyncio.ensure_future(other.create(paths.broker(2), records.encode_broker(RECORD), ephemeral=True))
    await asyncio.gather(deleted, created)
    stat = await other.exists(paths.broker(2))
    assert stat is not None
    node.controller.session_lost()
    node.session = other
    node.broker.restarted(stat.czxid)
    await cluster.quiet()
    assert state(cluster) == (2, 2, (2,))
    kinds = [type(request) for request in requests_to(cluster, 2, since)]
    assert kinds[0] is UpdateMetadata
    assert all(request.broker_epoch == stat.czxid for request in requests_to(cluster, 2, since))


@in_cluster(1, 2)
async def test_other_addresses_are_told_without_any_role_change(cluster: Cluster) -> None:
    await create(cluster, "t", (2,))
    await cluster.quiet()
    since = len(cluster.sent)
    session = cluster.node(2).session
    await session.set(paths.broker(2), records.encode_broker(RECORD._replace(rack="r2")))
    await cluster.quiet()
    assert {type(request) for _, _, request in cluster.sent[since:]} == {UpdateMetadata}
    assert cluster.node(1).broker.brokers[BrokerId(2)].rack == "r2"
    assert state(cluster) == (2, 0, (2,))


@in_cluster(1, 2, 3)
async def test_topics_that_another_broker_created_get_leaders(cluster: Cluster) -> None:
    controller = cluster.node(2).controller
    image = await cluster.image()
    writes = DirectWrites(
        lambda: cluster.node(2).session, lambda: image, lambda: cluster.settings, cluster.clock, cluster.rng
    )
    assert not controller.active
    wanted = NewTopic("t", 2, 2, configs={"retention.ms": "7"})
    (created,) = await writes.create_topics([wanted])
    assert created.error is None
    (again, other) = await writes.create_topics([wanted, NewTopic("u", 1, 1)])
    assert isinstance(again.error, errors.TopicAlreadyExistsError)
    assert other.error is None
    await cluster.quiet()
    for node in cluster.nodes.values():
        assert set(node.broker.metadata) == {T0, TopicPartition("t", 1), TopicPartition("u", 0)}
    known = cluster.controller._require().context.image
    assert known.topic_config("t") == {"retention.ms": "7"}
    assert known.topics["t"].topic_id == created.topic_id
    # More partitions, as Kafka's old tools added them.
    record = TopicRecord(created.topic_id, (*(each.replicas for each in known.topics["t"].partitions), (3,)))
    await cluster.node(3).session.set(paths.topic("t"), records.encode_topic(record))
    await cluster.quiet()
    assert state(cluster, TopicPartition("t", 2)) == (3, 0, (3,))
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_overrides_that_any_broker_writes_reach_the_controller(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    cluster.node(3).kill()
    await cluster.quiet()
    cluster.node(2).kill()
    await cluster.start(3)
    await cluster.quiet()
    assert state(cluster) == (NO_BROKER, 2, (2,))
    image = await cluster.image()
    writes = DirectWrites(
        lambda: cluster.node(3).session, lambda: image, lambda: cluster.settings, cluster.clock, cluster.rng
    )
    change = ConfigChange("unclean.leader.election.enable", 0, "true")
    (result,) = await writes.incremental_alter_configs([ConfigChanges(ConfigResource(2, "t"), (change,))])
    assert result.error is None
    await cluster.quiet()
    # An unclean election is allowed now, and the leader has to recover (KIP-704).
    assert state(cluster) == (3, 3, (3,))
    node = await cluster.node(3).session.get(paths.partition_state("t", 0))
    assert records.decode_partition_state("", node.data).leader_recovery_state == 1
    assert cluster.node(3).broker.roles[T0].leader_recovery_state == 1


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
async def test_deletions_that_tools_ask_for_in_the_store(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    session = cluster.node(2).session
    await session.create(paths.deleted_topic("t"))
    await session.create(paths.deleted_topic("unknown"))
    await cluster.quiet()
    assert await session.children(paths.DELETE_TOPICS) == []
    assert await session.children(paths.TOPICS) == []


@in_cluster(1, 2, 3, settings={"delete.topic.enable": "false"})
async def test_deletions_are_refused_where_they_are_not_enabled(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    session = cluster.node(2).session
    await session.create(paths.deleted_topic("t"))
    await cluster.quiet()
    assert await session.children(paths.DELETE_TOPICS) == []
    assert await session.children(paths.TOPICS) == ["t"]


def isr_change(cluster: Cluster, isr: tuple[int, ...], **more: int) -> PartitionChange:
    info = cluster.controller._require().context.image.partition(T0)
    assert info is not None
    return PartitionChange(
        T0,
        LeaderEpoch(more.get("leader_epoch", info.leader_epoch)),
        tuple((BrokerId(each), more.get("epoch", -1)) for each in isr),
        more.get("partition_epoch", info.partition_epoch),
        more.get("recovery_state", 0),
    )


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


@in_cluster(1, 2, 3)
async def test_moves_and_elections_that_tools_ask_for_in_the_store(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    session = cluster.node(2).session
    asked = records.encode_reassignment({T0: (3, 2), TopicPartition("unknown", 0): (1,)})
    await session.create(paths.REASSIGN_PARTITIONS, asked)
    await cluster.quiet()
    # Both targets are in sync: done at once, and the node is gone.
    assert await session.exists(paths.REASSIGN_PARTITIONS) is None
    assert state(cluster) == (2, 1, (2, 3))
    await session.create(paths.PREFERRED_REPLICA_ELECTION, records.encode_isr_change([T0]))
    await cluster.quiet()
    assert await session.exists(paths.PREFERRED_REPLICA_ELECTION) is None
    assert state(cluster) == (3, 2, (2, 3))
    await session.create(paths.REASSIGN_PARTITIONS, records.encode_reassignment({T0: (3, 1)}))
    await cluster.quiet()
    assert await session.exists(paths.REASSIGN_PARTITIONS) is not None
    await cluster.controller.alter_partition(BrokerId(3), -1, [isr_change(cluster, (2, 3, 1))])
    await cluster.quiet()
    assert await session.exists(paths.REASSIGN_PARTITIONS) is None
    assert state(cluster) == (3, 4, (3, 1))
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_an_isr_that_a_leader_changed_in_the_store_is_announced(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    session = cluster.node(2).session
    path = paths.partition_state("t", 0)
    node = await session.get(path)
    old = records.decode_partition_state(path, node.data)
    await session.set(path, records.encode_partition_state(old._replace(isr=(2,))), node.stat.version)
    await session.create(paths.ISR_CHANGE, records.encode_isr_change([T0]), sequential=True)
    await cluster.quiet()
    assert cluster.node(3).broker.metadata[T0].isr == (2,)
    assert await session.children(paths.ISR_CHANGES) == []
    # A state that was written since it was read is read again, not overwritten.
    node = await session.get(path)
    await session.set(path, records.encode_partition_state(old), node.stat.version)
    cluster.node(2).kill()
    await cluster.quiet()
    assert state(cluster) == (3, 1, (3,))
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_a_lost_data_directory_is_asked_about_and_its_leaders_move(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3), (2, 3))
    await cluster.quiet()
    cluster.node(2).broker.failed_logs.add(T0)
    await cluster.node(2).session.create(paths.LOG_DIR_EVENT, records.encode_log_dir_event(2), sequential=True)
    await cluster.quiet()
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 1)) == (2, 0, (2, 3))
    assert cluster.node(1).broker.metadata[T0].offline == (2,)
    assert await cluster.node(2).session.children(paths.LOG_DIR_EVENTS) == []


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
async def test_a_controlled_shutdown_moves_leaders_first(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3), (3, 2))
    await create(cluster, "u", (2,))
    epoch = cluster.node(2).broker.epoch
    with pytest.raises(errors.StaleBrokerEpochError):
        await cluster.controller.controlled_shutdown(BrokerId(2), epoch - 1)
    with pytest.raises(errors.BrokerNotAvailableError):
        await cluster.controller.controlled_shutdown(BrokerId(9), -1)
    assert await cluster.controller.controlled_shutdown(BrokerId(2), epoch) == []
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 1)) == (3, 1, (3,))
    assert state(cluster, TopicPartition("u", 0)) == (2, 0, (2,))
    # It does not come back into an ISR while it leaves.
    (refused,) = await cluster.controller.alter_partition(BrokerId(3), -1, [isr_change(cluster, (3, 2))])
    assert isinstance(refused.error, errors.IneligibleReplicaError)
    assert await cluster.controller.controlled_shutdown(BrokerId(3), -1) == [T0, TopicPartition("t", 1)]


@in_cluster(1, 2, 3)
async def test_producer_ids_are_never_given_twice(cluster: Cluster) -> None:
    blocks = [await cluster.controller.allocate_producer_ids(BrokerId(2), -1) for _ in range(3)]
    cluster.controller_node.kill()
    await cluster.quiet()
    blocks += [await cluster.controller.allocate_producer_ids(BrokerId(2), -1) for _ in range(3)]
    assert [block.first for block in blocks] == [0, 1000, 2000, 3000, 4000, 5000]
    with pytest.raises(errors.StaleBrokerEpochError):
        await cluster.controller.allocate_producer_ids(BrokerId(2), 0)


@in_cluster(1, 2, 3, settings={"auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "30"})
async def test_preferred_leaders_lead_again_by_themselves(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    cluster.node(2).kill()
    await asyncio.sleep(5)
    await cluster.start(2)
    await cluster.quiet()
    assert state(cluster) == (3, 1, (3,))
    await cluster.controller.alter_partition(BrokerId(3), -1, [isr_change(cluster, (3, 2))])
    await cluster.quiet()
    assert state(cluster) == (2, 2, (3, 2))


@in_cluster(1, 2, 3)
async def test_a_resignation_drops_everything_and_another_is_elected(cluster: Cluster) -> None:
    await create(cluster, "t", (1, 2), (2, 3))
    first = cluster.controller
    await first.resign()
    assert not first.active
    gauges = first.gauges
    assert (gauges.global_topic_count, gauges.global_partition_count, gauges.active_controller_count) == (0, 0, 0)
    await cluster.quiet()
    epoch = (await cluster.node(1).session.get(paths.CONTROLLER_EPOCH)).data
    assert epoch == b"2"
    assert cluster.controller.gauges.global_partition_count == 2
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_a_controller_without_its_session_is_replaced_and_comes_back_as_a_broker(cluster: Cluster) -> None:
    await create(cluster, "t", (1, 2), (2, 3))
    await cluster.node(1).expire()
    await cluster.quiet()
    assert cluster.controller_node.id != 1
    (grown,) = await cluster.controller.create_partitions([NewPartitions("t", 3)])
    assert grown.error is None
    await cluster.quiet()
    await cluster.check_converged()


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
