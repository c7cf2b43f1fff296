"""Groups of both protocols, and mixed ones, on three brokers, while these are stopped, killed and paused.

Every record is read, whoever gets a partition goes on at or after what was committed, and what the coordinator says of
the group's offsets never goes back. The seed is printed; `BRAIDLOG_SEED=7` runs that one again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster
from support.broker_faults import BrokerFaults
from support.cluster import start_cluster
from support.cluster_copying import SETTINGS
from support.group_scenarios import committed
from support.groups import GroupUnderTest, group_under_test
from support.ownership import Partition

KILLS = 4
TOPIC = "records"
# The last fault is over, and a member that missed its session has come back.
SETTLES_WITHIN_S = 90.0

Member = tuple[str, Mapping[str, Any]]
RANGE: Member = ("confluent", {"partition.assignment.strategy": "range"})
COOPERATIVE: Member = ("braidlog", {"partition.assignment.strategy": "cooperative-sticky"})
NEWER: Member = ("confluent", {"group.protocol": "consumer"})
OURS_NEWER: Member = ("braidlog", {"group.protocol": "consumer"})
GROUPS: Mapping[str, list[Member]] = {
    "classic": [RANGE, RANGE, RANGE],
    "cooperative": [COOPERATIVE, COOPERATIVE, COOPERATIVE],
    "newer": [NEWER, OURS_NEWER, NEWER],
    "mixed": [COOPERATIVE, NEWER, OURS_NEWER],
}


class OffsetsOnlyAdvance:
    """What the coordinator says of the group, whoever that is now."""

    def __init__(self, cluster: Cluster, group: GroupUnderTest) -> None:
        self._cluster = cluster
        self._group = group
        self._known: dict[Partition, int] = {}

    def check(self) -> None:
        acknowledged = self._group.history().committed()
        found = committed(self._cluster.bootstrap_servers, self._group.group, dict.fromkeys(self._group.partitions))
        for place, (offset, _) in found.items():
            least = max(self._known.get(place, -1), acknowledged.get(place, -1))
            assert offset >= least, f"{place}: {least} was committed, now {offset} is\n{self._group.tell()}"
            self._known[place] = offset


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", GROUPS)
def test_a_group_reads_everything(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path, kinds: str
) -> None:
    seed = int(os.environ.get("BRAIDLOG_SEED", 8))
    settings = {**SETTINGS, "zookeeper.connect": new_connect()}
    with (
        start_cluster(zookeeper, tmp_path, settings=settings) as cluster,
        group_under_test(cluster.bootstrap_servers, TOPIC, "confluent") as group,
    ):
        members = [
            group.start(f"member-{number}", client, settings=own) for number, (client, own) in enumerate(GROUPS[kinds])
        ]
        faults = BrokerFaults(cluster, Random(seed), topics=[TOPIC], groups=[group.group])
        offsets = OffsetsOnlyAdvance(cluster, group)
        with group.writing():
            group.settle(*members)
            while faults.kills < KILLS:
                print(faults.strike(), flush=True)
                offsets.check()
            group.settle(*members, within_s=SETTLES_WITHIN_S)
        group.read_all(SETTLES_WITHIN_S)
        offsets.check()
        group.history().check(group.written())
        print(f"seed {seed}, {faults}: {faults.by_role()}; {sum(group.written().values())} records")
