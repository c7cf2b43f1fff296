"""A stream from topic to topic on three brokers, while these are stopped, killed and paused past their session."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from braidlog import Consumer
from braidlog.testing import Cluster
from support.cluster_faults import live_through_faults, whole
from support.cluster_traffic import PARTITIONS, OurTraffic
from support.eventually import eventually
from support.open_transactions import check_nothing_is_open

# The last batch is planned, read, written and committed.
COPIED_WITHIN_S = 120.0


def committed(cluster: Cluster, topic: str) -> Counter[str]:
    """Every value of the topic that a transaction committed, and how often."""
    found: Counter[str] = Counter()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        consumer.seek_to_beginning()
        while records := consumer.poll(5.0):
            found.update((record.value or b"").decode() for record in records)
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stream_copies_everything_once(spark: Any, braidlog_cluster: Cluster, tmp_path: Path) -> None:
    source, sink = (braidlog_cluster.create_topic(partitions=PARTITIONS) for _ in range(2))
    for topic in (source, sink):
        whole(braidlog_cluster, topic, PARTITIONS)
    servers = {"kafka.bootstrap.servers": braidlog_cluster.bootstrap_servers}
    rows = spark.readStream.format("braidlog").options(**servers, subscribe=source, startingOffsets="earliest").load()
    writer = rows.select("value", "partition").writeStream.format("braidlog").options(**servers, topic=sink)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with OurTraffic(braidlog_cluster.bootstrap_servers, source) as traffic:
            eventually(lambda: query.exception() is not None or query.lastProgress is not None, COPIED_WITHIN_S)
            live_through_faults(braidlog_cluster, source, PARTITIONS)
            traffic.settle()
        traffic.check()
        wanted = Counter(traffic.acknowledged)
        eventually(
            lambda: query.exception() is not None or committed(braidlog_cluster, sink) == wanted, COPIED_WITHIN_S
        )
        assert query.exception() is None
        check_nothing_is_open(braidlog_cluster.bootstrap_servers)
    finally:
        query.stop()
    assert committed(braidlog_cluster, sink) == wanted
