"""A lone broker's numbers; tests/cluster/test_watching.py has those of a cluster that loses a broker."""

from __future__ import annotations

import re
from pathlib import Path

from braidlog.broker.broker_metrics import broker_metrics
from braidlog.broker.server import Server
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from support.in_process_server import answer, on_server


def numbers(page: str) -> dict[str, float]:
    """By name with labels."""
    return {name: float(value) for name, value in re.findall(r"(?m)^([a-z]\S*(?:\{.*\})?) (\S+)$", page)}


def test_partitions_of_one_replica_are_no_trouble(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        await answer(server, "CreateTopics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        found = numbers(broker_metrics(server).text())
        manager = "kafka_server_replicamanager_"
        assert found[manager + "leadercount"] == found[manager + "partitioncount"] == 2
        # As in Kafka: one of one is exactly as many as there must be.
        assert found[manager + "atminisrpartitioncount"] == 2
        for name in (
            "underreplicatedpartitions", "underminisrpartitioncount", "offlinereplicacount", "reassigningpartitions",
            "produceridcount", "isrshrinks_total", "isrexpands_total", "failedisrupdates_total",
        ):  # fmt: skip
            assert found[manager + name] == 0
        of_first = '{topic="t",partition="0"}'
        assert found["kafka_cluster_partition_replicascount" + of_first] == 1
        assert found["kafka_cluster_partition_insyncreplicascount" + of_first] == 1
        assert not [name for name in found if "atminisr{" in name or "underreplicated{" in name or "behind" in name]

    on_server(tmp_path, check)


def test_the_controller_of_a_lone_broker(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        await answer(server, "CreateTopics", 5, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        found = numbers(broker_metrics(server).text())
        assert found["kafka_controller_kafkacontroller_activebrokercount"] == 1
        assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 0
        assert found['kafka_controller_controllerstats_timems_count{state="ControllerChange"}'] == 1
        assert found['kafka_controller_controllerstats_timems_count{state="TopicChange"}'] >= 1
        assert found["kafka_controller_controllereventmanager_eventqueuetimems_count"] >= 1
        assert found["kafka_controller_controllereventmanager_eventqueuesize"] == 0
        assert found["kafka_controller_controllerchannelmanager_totalqueuesize"] == 0
        for waiting in ("Fetch", "Produce", "DeleteRecords", "Rebalance"):
            name = "kafka_server_delayedoperationpurgatory_purgatorysize"
            assert found[f'{name}{{delayedoperation="{waiting}"}}'] == 0

    on_server(tmp_path, check)
