"""What only brokers send is taken on the listener between brokers, and refused on the one for clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from braidlog.wire.generated.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from support import confluent
from support.cluster import start_cluster
from support.ports import lasting_port
from support.raw import ask

CLUSTER_AUTHORIZATION_FAILED = 31


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    running = start_cluster(zookeeper, tmp_path_factory.mktemp("listeners"), 1, {"zookeeper.connect": new_connect()})
    broker = running.brokers[0]
    broker.settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},BROKERS://127.0.0.1:{lasting_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
    with running:
        yield running


def inner_port(cluster: Cluster) -> int:
    return int(cluster.brokers[0].settings["listeners"].rpartition(":")[2])


def delete_log(topic: str) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    return StopReplicaRequest(
        controller_id=0,
        controller_epoch=1_000,
        topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[state])],
    )


def test_a_client_cannot_delete_logs(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    confluent.create_topic(broker.bootstrap_servers, "kept")
    answer = ask(broker.port, "StopReplica", 4, delete_log("kept"))
    assert isinstance(answer, StopReplicaResponse)
    assert answer.error_code == CLUSTER_AUTHORIZATION_FAILED
    assert answer.partition_errors[0].error_code == CLUSTER_AUTHORIZATION_FAILED
    assert (broker.data_dir / "kept-0").is_dir()
    refused = ask(broker.port, "AllocateProducerIds", 0, AllocateProducerIdsRequest(broker_id=0))
    assert isinstance(refused, AllocateProducerIdsResponse)
    assert refused.error_code == CLUSTER_AUTHORIZATION_FAILED
    assert "refused 1 requests that only brokers send" in broker.log()


def test_markers_come_from_brokers_alone(cluster: Cluster) -> None:
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, topics=[WritableTxnMarkerTopic(name="kept", partition_indexes=[0])]
    )
    answer = ask(cluster.brokers[0].port, "WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[marker]))
    assert isinstance(answer, WriteTxnMarkersResponse)
    assert answer.markers[0].topics[0].partitions[0].error_code == CLUSTER_AUTHORIZATION_FAILED


def test_between_brokers_they_are_taken(cluster: Cluster) -> None:
    given = ask(inner_port(cluster), "AllocateProducerIds", 0, AllocateProducerIdsRequest(broker_id=0))
    assert isinstance(given, AllocateProducerIdsResponse)
    assert (given.error_code, given.producer_id_len) == (0, 1000)
