"""Apache Kafka 3.9 in ZooKeeper mode beside our store: each reads what the other wrote, and writes the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.peers.kafka import TOOL_JVM, run_tool, start_kafka_with_zookeeper

from braidlog.cluster import paths, records, registration
from braidlog.cluster.loading import load
from braidlog.cluster.records import BrokerRecord, FeaturesRecord
from braidlog.cluster.store import CoordinationStore
from braidlog.cluster.zookeeper.connection_settings import connection_settings
from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.core.types import BrokerId, Endpoint
from braidlog.local_cluster.zookeeper import ZooKeeper, zookeeper_missing
from braidlog.metrics import MetricsRegistry

MISSING = zookeeper_missing()
pytestmark = [
    pytest.mark.peer,
    pytest.mark.usefixtures("apache_kafka"),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

JVM = ("-Xmx512M", *TOOL_JVM[1:])
TOPIC = "orders"


async def open_session(zookeeper: ZooKeeper) -> CoordinationStore:
    settings = connection_settings(f"{zookeeper.connect}/kafka", BrokerSettings({}))
    return await ZooKeeperStore(settings, SystemClock(), MetricsRegistry()).open_session()


def create_topic(bootstrap: str) -> None:
    done = run_tool(
        "kafka-topics",
        [
            "--bootstrap-server",
            bootstrap,
            "--create",
            "--topic",
            TOPIC,
            "--partitions",
            "3",
            "--config",
            "retention.ms=9",
        ],
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def check_same(
    store: CoordinationStore, path: str, decode: Callable[[str, bytes], object], encode: Callable[..., bytes]
) -> None:
    data = (await store.get(path)).data
    assert json.loads(encode(decode(path, data))) == json.loads(data), path


def test_kafka_starts_in_an_ensemble_that_we_prepared_and_its_nodes_are_as_ours(tmp_path: Path) -> None:
    async def prepare() -> str:
        store = await open_session(zookeeper)
        await registration.prepare_store(store)
        await registration.finalized_features(store, FeaturesRecord(True, {}), initialised_here=False)
        made = await registration.cluster_id(store)
        await store.close()
        return made

    async def look() -> None:
        store = await open_session(zookeeper)
        await registration.register(store, BrokerId(2), ours)
        image = (await load(store)).image
        assert image.cluster_id == cluster_id
        assert image.controller_id == 1
        assert sorted(image.brokers) == [1, 2]
        topic = image.topics[TOPIC]
        assert [(each.leader, each.isr, each.leader_recovery_state) for each in topic.partitions] == [(1, (1,), 0)] * 3
        assert image.configs[f"topics/{TOPIC}"] == {"retention.ms": "9"}
        await check_same(store, paths.broker(1), records.decode_broker, records.encode_broker)
        await check_same(store, paths.topic(TOPIC), records.decode_topic, records.encode_topic)
        await check_same(
            store, paths.partition_state(TOPIC, 0), records.decode_partition_state, records.encode_partition_state
        )
        await check_same(store, paths.config(f"topics/{TOPIC}"), records.decode_config, records.encode_config)
        await check_same(store, paths.FEATURE, records.decode_features, records.encode_features)
        assert (await store.get(paths.FEATURE)).data == b'{"features":{},"version":2,"status":1}'
        described = await asyncio.to_thread(run_tool, "kafka-broker-api-versions", ["--bootstrap-server", bootstrap])
        assert "id: 1" in described.stdout
        await store.close()

    ours = BrokerRecord((Endpoint("PLAINTEXT", "127.0.0.1", 1),), {"PLAINTEXT": "PLAINTEXT"})
    with ZooKeeper() as zookeeper:
        cluster_id = asyncio.run(prepare())
        properties = {"zookeeper.connect": f"{zookeeper.connect}/kafka"}
        port = zookeeper.servers[0].port
        with start_kafka_with_zookeeper(tmp_path / "kafka", port, properties=properties, jvm=JVM) as kafka:
            bootstrap = kafka.bootstrap
            create_topic(bootstrap)
            asyncio.run(look())
