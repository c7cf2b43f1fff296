"""Kafka Streams counts words exactly once on three brokers, while these are stopped, killed and paused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from support.broker_faults import BrokerFaults
from support.cluster import start_cluster
from support.cluster_copying import SETTINGS
from support.open_transactions import check_nothing_is_open
from support.word_count import EXACTLY_ONCE, WordCountApp

KILLS = 4
LINES = 100


@pytest.mark.peer
@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_word_is_counted_once(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> None:
    seed = int(os.environ.get("BRAIDLOG_SEED", 6))
    with start_cluster(zookeeper, tmp_path, settings={**SETTINGS, "zookeeper.connect": new_connect()}) as cluster:
        app = WordCountApp(cluster.bootstrap_servers, "words", EXACTLY_ONCE, tmp_path / "state")
        faults = BrokerFaults(cluster, Random(seed), topics=[app.input, app.output], groups=[app.name])
        app.write(LINES)
        with app.start() as counting:
            app.wait_for_first(counting)
            while faults.kills < KILLS:
                # What is written is counted while the fault lasts.
                app.write(LINES)
                print(faults.strike(), flush=True)
            app.write(LINES)
            app.wait(counting)
            app.check_counted_once()
            check_nothing_is_open(cluster.bootstrap_servers)
            print(f"seed {seed}, {faults}: {faults.by_role()}; {sum(app.expected.values())} words")
