from __future__ import annotations

from braidlog.controller.deletion import begin
from braidlog.controller.gauges import ControllerGauges, ControllerState, ControllerStats
from braidlog.controller.plan import ControllerContext
from braidlog.core.types import BrokerId, TopicPartition
from support.controller_harness import context, partition, topic

NAMES = [name for name, each in vars(ControllerGauges).items() if isinstance(each, property)]


def read(known: ControllerContext | None) -> dict[str, int]:
    gauges = ControllerGauges(lambda: known, lambda: ControllerState.TOPIC_CHANGE)
    return {name: getattr(gauges, name) for name in NAMES}


def test_all_are_zero_off_the_controller() -> None:
    assert len(NAMES) == 11
    assert set(read(None).values()) == {0}


def test_what_the_controller_counts() -> None:
    doomed = topic("doomed", partition(1, (1,), (1, 9)))
    known = context(
        topic("t", partition(2, (1, 2), (1, 2)), partition(9, (9,), (9,)), partition(1, (1,), (1,))),
        doomed,
        brokers={1: None, 2: None},
    )
    known = known.after(begin(known, [doomed], mark=True))
    known = known._replace(offline_dirs={BrokerId(1): frozenset({TopicPartition("t", 2)})})
    assert read(known) == {
        "active_controller_count": 1,
        "active_broker_count": 2,
        "controller_state": 3,
        "offline_partitions_count": 2,
        "preferred_replica_imbalance_count": 1,
        "global_topic_count": 1,
        "global_partition_count": 3,
        "topics_to_delete_count": 1,
        "topics_ineligible_to_delete_count": 1,
        "replicas_to_delete_count": 2,
        "replicas_ineligible_to_delete_count": 1,
    }


def test_elections_are_counted_and_unclean_ones_apart() -> None:
    before = context(
        topic(
            "t",
            partition(1, (1, 2), (1, 2)),  # fails over to one in sync
            partition(1, (1,), (1, 2)),  # to one that is not
            partition(1, (1,), (1, 2)),  # has no leader any more
            partition(2, (2,), (2,)),  # stays as it is
        ),
    ).image
    after = context(
        topic(
            "t",
            partition(2, (2,), (1, 2)),
            partition(2, (2,), (1, 2)),
            partition(-1, (1,), (1, 2)),
            partition(2, (2,), (2,)),
            partition(2, (2,), (2,)),  # is new
        ),
    ).image
    stats = ControllerStats()
    stats.elected(before, after, [TopicPartition("t", each) for each in range(5)] + [TopicPartition("u", 0)])
    assert (stats.elections, stats.unclean_elections) == (2, 1)


def test_work_is_timed_by_what_it_was() -> None:
    stats = ControllerStats()
    stats.worked(ControllerState.BROKER_CHANGE, 0.25)
    # What Kafka has no name for is not counted.
    stats.worked(ControllerState.IDLE, 1.0)
    assert stats.times[ControllerState.BROKER_CHANGE].total == 250
    assert sum(each.count for each in stats.times.values()) == 1
