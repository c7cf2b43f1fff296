"""A cluster of three brokers of Apache Kafka becomes one of three braidlog brokers, one by one, and goes back.

In place: braidlog starts over the data directory and the settings file of the broker that was stopped. By replication:
it starts with an empty directory, under the same id or another. Clients write and read all the time, and the history
checker judges them. docs/MIGRATING.md has the same walks as commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from support.broker import BRAIDLOG, KAFKA
from support.migrating_cluster import MigratingCluster
from support.migration_walk import COMMANDS, EXECUTE, THROTTLE, Walk

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(1800)]


@pytest.fixture
def cluster(
    apache_kafka: object, zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> Iterator[MigratingCluster]:
    made = MigratingCluster(tmp_path, new_connect())
    try:
        yield made
    finally:
        made.end()


def test_in_place(cluster: MigratingCluster) -> None:
    """Of a topic with one replica, too, which comes along on its disk."""
    with Walk(cluster, lone_replica=2) as walk:
        with walk.under_load(BRAIDLOG):
            first, *others = cluster.controller_last()
            walk.replace_in_place(first, BRAIDLOG)
            # Back from any step, and on again.
            walk.replace_in_place(first, KAFKA)
            for broker in (first, *others):
                walk.replace_in_place(broker, BRAIDLOG)
        cluster.start_all(BRAIDLOG)
        with walk.under_load(KAFKA):
            for broker in cluster.controller_last():
                walk.replace_in_place(broker, KAFKA)
        check_controllers(walk)


def test_by_replication(cluster: MigratingCluster) -> None:
    """With the same id and an empty directory, and the last one with another id."""
    with Walk(cluster, throttles_leaders=False) as walk:
        with walk.under_load(BRAIDLOG):
            replace_by_replication(walk, BRAIDLOG)
        cluster.start_all(BRAIDLOG)
        with walk.under_load(KAFKA):
            replace_by_replication(walk, KAFKA)
        check_controllers(walk)


def test_the_page_has_the_commands() -> None:
    """Those that the walks run."""
    page = Path(__file__).parents[2].joinpath("docs", "MIGRATING.md").read_text()
    commands = [*COMMANDS, (*EXECUTE, "--without", "3", *THROTTLE)]
    for words in commands:
        assert f"braidlog {' '.join(words)}\n" in page
    assert "braidlog serve --config server.properties\n" in page


def replace_by_replication(walk: Walk, kind: str) -> None:
    *others, controller = walk.cluster.controller_last()
    for broker in others:
        walk.replace_with_empty_directory(broker, kind)
    walk.replace_by_another_id(controller, kind)


def check_controllers(walk: Walk) -> None:
    """Each kind was the controller of brokers of the other, and was followed by it."""
    for kind in (BRAIDLOG, KAFKA):
        commanded = [others for controller, others in walk.seen if controller == kind]
        assert any(set(others) != {kind} for others in commanded), walk.seen
