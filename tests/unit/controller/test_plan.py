from __future__ import annotations

from braidlog.cluster import paths, records
from braidlog.cluster.records import PartitionStateRecord, TopicRecord
from braidlog.cluster.store import Create, SetData
from braidlog.controller.plan import (
    Put,
    create_partitions,
    initial_state,
    initial_states,
    state_data,
    topic_data,
    with_partitions,
    write_state,
)
from support.controller_harness import ids, partition, topic


def test_the_first_live_replica_leads_and_all_live_ones_are_in_sync() -> None:
    state = initial_state((3, 1, 2), (1, 2), 7)
    assert (state.leader, state.isr, state.replicas) == (1, (1, 2), (3, 1, 2))
    assert (state.leader_epoch, state.controller_epoch, state.partition_epoch) == (0, 7, 0)


def test_without_any_live_replica_all_of_them_count() -> None:
    state = initial_state((3, 1), (), 7)
    assert (state.leader, state.isr) == (3, (3, 1))


def test_partitions_with_the_same_replicas_share_one_value() -> None:
    states = initial_states([(1, 2), (2, 1), (1, 2)], (1, 2), 7)
    assert states[0] is states[2]
    assert states[1].leader == 2


def test_what_is_written_is_what_the_image_says() -> None:
    moving = partition(1, (1,), (1, 2), epoch=4, adding=ids(2), removing=ids(1))
    assert records.decode_partition_state("p", state_data(moving)) == PartitionStateRecord(1, 4, (1,), 1)
    still = partition(2, (2,), (2,))
    found = topic("t", still, moving)
    assert records.decode_topic("p", topic_data(found)) == TopicRecord(
        found.topic_id, ((2,), (1, 2)), {1: (2,)}, {1: (1,)}
    )


def test_only_new_partitions_get_nodes_parents_first() -> None:
    steps = create_partitions(topic("t", *[partition(1, (1,), (1,))] * 3), 1)
    assert [step.path for step in steps] == [
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
        "/brokers/topics/t/partitions/2",
        "/brokers/topics/t/partitions/2/state",
    ]


def test_a_state_is_replaced_only_as_it_was_read() -> None:
    before = partition(1, (1, 2), (1, 2))
    after = partition(2, (2,), (1, 2), epoch=1)
    path = paths.partition_state("t", 0)
    assert write_state("t", 0, before._replace(partition_epoch=9), after) == [SetData(path, state_data(after), 9)]
    assert write_state("t", 0, before._replace(partition_epoch=-1), after) == [
        Put("/brokers/topics/t/partitions"),
        Put("/brokers/topics/t/partitions/0"),
        Create(path, state_data(after)),
    ]


def test_a_topic_with_some_partitions_changed() -> None:
    before = topic("t", *[partition(1, (1,), (1,))] * 3)
    changed = partition(1, (1,), (1,), epoch=9)
    after = with_partitions(before, {1: changed}, 5)
    assert after.partitions == (before.partitions[0], changed, before.partitions[2])
    assert (after.name, after.topic_id, after.version) == (before.name, before.topic_id, 5)
