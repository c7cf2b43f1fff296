from __future__ import annotations

from itertools import pairwise

from braidlog.cluster import paths
from braidlog.cluster.store import check_path


def test_paths_are_those_of_kafka() -> None:
    assert paths.broker(3) == "/brokers/ids/3"
    assert paths.topic("orders") == "/brokers/topics/orders"
    assert paths.partition_state("orders", 2) == "/brokers/topics/orders/partitions/2/state"
    assert paths.config("topics/orders") == "/config/topics/orders"
    assert paths.deleted_topic("orders") == "/admin/delete_topics/orders"
    assert paths.consumer_offset("billing", "orders", 0) == "/consumers/billing/offsets/orders/0"


def test_the_paths_of_a_topic_lie_in_each_other() -> None:
    chain = [paths.topic("t"), paths.partitions("t"), paths.partition("t", 0), paths.partition_state("t", 0)]
    for parent, child in pairwise(chain):
        assert child.rpartition("/")[0] == parent


def test_the_offsets_of_a_group_lie_below_the_group() -> None:
    assert paths.consumer_offset("g", "t", 1).startswith(paths.consumer_offsets("g") + "/")


def test_what_a_broker_prepares_are_valid_paths_each_once() -> None:
    for path in paths.PERSISTENT_PATHS:
        check_path(path)
    assert len(set(paths.PERSISTENT_PATHS)) == len(paths.PERSISTENT_PATHS)
    kinds = {f"/config/{kind}" for kind in paths.CONFIG_KINDS}
    # As Kafka does: it has no settings of groups on ZooKeeper.
    assert kinds - set(paths.PERSISTENT_PATHS) == {paths.GROUP_CONFIGS}
