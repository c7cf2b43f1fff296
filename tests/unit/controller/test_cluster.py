"""Several brokers on one store: which of them is the controller, and what that means to the others."""

from __future__ import annotations

import asyncio
import logging

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.store import LeaseExpiredError
from braidlog.controller.requests import (
    NewPartitions,
    NewTopic,
)
from braidlog.core import protocol_errors as errors
from braidlog.core.types import BrokerId
from support.controller_cluster import Cluster, Node, create, in_cluster, isr_change, state
from support.controller_harness import RECORD


class LogLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


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


@in_cluster(1, 2, 3, settings={"leader.imbalance.check.interval.seconds": "30"})
async def test_preferred_leaders_stay_away_where_that_is_off(cluster: Cluster) -> None:
    """auto.leader.rebalance.enable is false in these clusters."""
    await create(cluster, "t", (2, 3))
    cluster.node(2).kill()
    await asyncio.sleep(5)
    await cluster.start(2)
    await cluster.quiet()
    await cluster.controller.alter_partition(BrokerId(3), -1, [isr_change(cluster, (3, 2))])
    await asyncio.sleep(300)
    assert state(cluster)[0] == 3


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
async def test_a_controller_that_the_store_does_not_answer_resigns_in_one_line(cluster: Cluster) -> None:
    first, said = cluster.controller, LogLines()
    logging.getLogger("braidlog.controller").addHandler(said)
    active = first._active
    assert active is not None
    first._lost(active, LeaseExpiredError("the store is silent"))
    logging.getLogger("braidlog.controller").removeHandler(said)
    assert [(record.levelname, record.getMessage(), record.exc_info) for record in said.records] == [
        ("WARNING", "the controller resigns: the store is silent", None)
    ]
    await cluster.quiet()
    await cluster.check_converged()


@in_cluster(1, 2)
async def test_a_broker_that_cannot_take_office_starts_all_the_same(cluster: Cluster) -> None:
    """Its first takeover meets a broker that knows a newer controller."""
    cluster.node(1).kill()
    await cluster.quiet()
    assert cluster.controller_node.id == 2
    cluster.node(2).kill()
    await cluster.quiet()
    survivor = cluster.store.connect()
    await survivor.create(paths.broker(3), records.encode_broker(RECORD), ephemeral=True)
    stale = cluster.nodes[BrokerId(3)] = Node(cluster, 3)
    stale.alive, stale.broker.controller_epoch = True, 5
    stale.controller = cluster.node(1).controller
    await cluster.start(1)
    await cluster.quiet()
    del cluster.nodes[BrokerId(3)]
    assert cluster.node(1).controller.active
    assert (await survivor.get(paths.CONTROLLER_EPOCH)).data == b"5"
    assert stale.broker.brokers
