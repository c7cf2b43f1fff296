from __future__ import annotations

import asyncio

from braidlog.cluster import paths, records
from braidlog.cluster.control_requests import (
    UpdateMetadata,
)
from braidlog.cluster.records import TopicRecord
from braidlog.config.broker import BrokerSettings
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.requests import (
    ConfigChange,
    ConfigChanges,
    ConfigResource,
    NewTopic,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.types import NO_BROKER, BrokerId, TopicPartition
from support.controller_cluster import T0, Cluster, create, in_cluster, isr_change, requests_to, state
from support.controller_harness import RECORD


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
    # The leader is done with that at once, and says so with the next change of the ISR.
    await cluster.start(2)
    await cluster.quiet()
    (grown,) = await cluster.controller.alter_partition(BrokerId(3), -1, [isr_change(cluster, (3, 2))])
    assert grown.error is None
    await cluster.quiet()
    node = await cluster.node(3).session.get(paths.partition_state("t", 0))
    assert b"leader_recovery_state" not in node.data
    assert state(cluster) == (3, 3, (3, 2))


@in_cluster(1, 2, 3)
async def test_a_broker_setting_that_allows_unclean_elections_counts_at_once(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    cluster.node(3).kill()
    await cluster.quiet()
    cluster.node(2).kill()
    await cluster.start(3)
    await cluster.quiet()
    assert state(cluster) == (NO_BROKER, 2, (2,))
    cluster.settings = BrokerSettings({**cluster.settings.static, "unclean.leader.election.enable": "true"})
    cluster.controller.settings_changed(cluster.settings, ["num.io.threads"])
    await cluster.quiet()
    assert state(cluster) == (NO_BROKER, 2, (2,))
    cluster.controller.settings_changed(cluster.settings, ["unclean.leader.election.enable"])
    await cluster.quiet()
    assert state(cluster) == (3, 3, (3,))


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
