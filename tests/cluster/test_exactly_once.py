"""Copy topics exactly once over three brokers, while these and the workers die at random moments.

Offsets, transactions and all topics are spread over the brokers, so that every transaction spans some of them. The
seed is printed; `BRAIDLOG_SEED=7` runs that one again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from support.cluster import start_cluster
from support.cluster_copying import SETTINGS, ClusterCopying
from support.copy_loop import WorkerKind
from support.copy_plan import BRAIDLOG, CLASSIC, CONFLUENT, CONSUMER, JAVA_NEWER, JAVA_OLDER
from support.soak import scaled

FEW_KILLS = 7
OURS = {"ours": [WorkerKind(BRAIDLOG, CLASSIC)] * 2}
OURS_NEWER = {"ours-newer": [WorkerKind(BRAIDLOG, CONSUMER)] * 2}
LIBRDKAFKA = {"librdkafka": [WorkerKind(CONFLUENT, CLASSIC)] * 2}
LIBRDKAFKA_NEWER = {"librdkafka-newer": [WorkerKind(CONFLUENT, CONSUMER)] * 2}
MIXED = {"mixed": [WorkerKind(BRAIDLOG, CLASSIC), WorkerKind(CONFLUENT, CONSUMER)]}
JAVA = {"java": [WorkerKind(JAVA_OLDER, CLASSIC)]}
JAVA_MIXED = {"java-mixed": [WorkerKind(JAVA_OLDER, CLASSIC), WorkerKind(JAVA_NEWER, CONSUMER)]}


@pytest.fixture
def copy_through(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> Callable[..., ClusterCopying]:
    def run(
        loops: Mapping[str, Sequence[WorkerKind]],
        kills: int,
        *,
        seed: int,
        moves: bool = False,
    ) -> ClusterCopying:
        seed = int(os.environ.get("BRAIDLOG_SEED", seed))
        print(f"seed {seed}, {kills} kills of brokers and workers")
        with start_cluster(zookeeper, tmp_path, settings={**SETTINGS, "zookeeper.connect": new_connect()}) as cluster:
            copying = ClusterCopying(cluster, seed, loops, moves=moves)
            copying.run(kills)
        return copying

    return run


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("loops", [OURS, OURS_NEWER], ids=["classic", "newer"])
def test_our_client_through_a_few_kills(
    copy_through: Callable[..., ClusterCopying], loops: Mapping[str, Sequence[WorkerKind]]
) -> None:
    copy_through(loops, FEW_KILLS, seed=3, moves=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("loops", [LIBRDKAFKA, LIBRDKAFKA_NEWER, MIXED], ids=["classic", "newer", "mixed"])
def test_confluent_kafka_through_a_few_kills(
    copy_through: Callable[..., ClusterCopying], loops: Mapping[str, Sequence[WorkerKind]]
) -> None:
    copy_through(loops, FEW_KILLS, seed=4)


@pytest.mark.long
@pytest.mark.peer
@pytest.mark.timeout(900)
@pytest.mark.parametrize("loops", [JAVA, JAVA_MIXED], ids=["classic", "mixed"])
def test_the_java_client_through_a_few_kills(
    copy_through: Callable[..., ClusterCopying], loops: Mapping[str, Sequence[WorkerKind]]
) -> None:
    copy_through(loops, FEW_KILLS, seed=5, moves=True)


@pytest.mark.soak
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize(
    ("loops", "kills"),
    [
        pytest.param({**OURS, **LIBRDKAFKA, **MIXED}, scaled(150), id="python"),
        pytest.param(JAVA_MIXED, scaled(50), id="java", marks=pytest.mark.peer),
    ],
)
def test_hundreds_of_kills_copy_everything_once(
    copy_through: Callable[..., ClusterCopying], loops: Mapping[str, Sequence[WorkerKind]], kills: int
) -> None:
    copying = copy_through(loops, kills, seed=100)
    assert all(copied.aborted_records > 0 for copied in copying.copied.values()), "no transaction was cut short"
