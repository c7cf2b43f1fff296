"""Transactions over several brokers: markers for partitions that others lead, and what their coordinators verify."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.broker.coordinators.add_partitions_manager import OnVerified, PartitionErrors, error_from
from braidlog.broker.coordinators.marker_writer import MarkerDone, MarkerWriter
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster.image import BrokerInfo, ClusterImage
from braidlog.config.topic_names import TRANSACTIONS_TOPIC
from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.partitioning import partition_for
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    ProtocolError,
    UnsupportedVersionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, TopicPartition, by_topic
from braidlog.net.outbound.errors import ClientError
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class RemoteTransactions:
    """What concerns this broker's own partitions and coordinators stays a call."""

    def __init__(
        self,
        broker_id: BrokerId,
        network: InterBrokerNetwork,
        image: Callable[[], ClusterImage],
        markers: MarkerWriter,
        tasks: Tasks,
    ) -> None:
        self._broker_id = broker_id
        self._network = network
        self._image = image
        self._markers = markers
        self._tasks = tasks
        self._links: dict[BrokerId, tuple[BrokerInfo, ReconnectingConnection]] = {}

    def write_markers(self, markers: SendMarkers, done: MarkerDone) -> None:
        """As `MarkerWriter.write`, to the leader of each partition. Whoever is told of a failure tries again."""
        image = self._image()
        elsewhere: dict[BrokerId, list[TopicPartition]] = {}
        here: list[TopicPartition] = []
        for target in markers.partitions:
            info = image.partition(target)
            if info is None or info.leader == self._broker_id or info.leader not in image.brokers:
                here.append(target)
            else:
                elsewhere.setdefault(info.leader, []).append(target)
        if here:
            self._markers.write(_for_partitions(markers, here), done)
        for leader, targets in elsewhere.items():
            sending = self._send_markers(image.brokers[leader], markers, targets, done)
            self._tasks.spawn(f"markers to broker {leader}", sending)

    async def _send_markers(
        self, leader: BrokerInfo, markers: SendMarkers, targets: list[TopicPartition], done: MarkerDone
    ) -> None:
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=markers.producer_id,
                    producer_epoch=markers.producer_epoch,
                    transaction_result=markers.commits,
                    topics=[
                        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                        for topic, indexes in by_topic(targets).items()
                    ],
                    coordinator_epoch=markers.coordinator_epoch,
                )
            ]
        )
        results: dict[TopicPartition, ProtocolError | None] = {}
        try:
            connection = await self._connection(leader)
            timeout_s = self._network.request_timeout_s
            response = await connection.call(
                ApiKey.WRITE_TXN_MARKERS, request, WriteTxnMarkersResponse, timeout_s=timeout_s
            )
            for marker in response.markers:
                for topic in marker.topics:
                    for each in topic.partitions:
                        results[TopicPartition(topic.name, each.partition_index)] = error_from(each.error_code)
        except (ClientError, UnsupportedVersionError) as problem:
            lost: ProtocolError = NotLeaderOrFollowerError(f"broker {leader.id} did not take the marker: {problem}")
            results = dict.fromkeys(targets, lost)
        for target in targets:
            done(target, results.get(target, NotLeaderOrFollowerError(f"broker {leader.id} says nothing of it")))

    def ask_coordinator(
        self, wanted: AddPartitionsToTxnTransaction, partitions: list[TopicPartition], done: OnVerified
    ) -> bool:
        """False where the coordinator is here, or is not known: then this broker's own answers."""
        image = self._image()
        topic = image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return False
        leader = topic.partitions[partition_for(wanted.transactional_id, len(topic.partitions))].leader
        if leader == self._broker_id or leader not in image.brokers:
            return False
        asking = self._ask(image.brokers[leader], wanted, partitions, done)
        self._tasks.spawn(f"asking the coordinator on broker {leader}", asking)
        return True

    async def _ask(
        self,
        coordinator: BrokerInfo,
        wanted: AddPartitionsToTxnTransaction,
        partitions: list[TopicPartition],
        done: OnVerified,
    ) -> None:
        answers: PartitionErrors
        try:
            connection = await self._connection(coordinator)
            response = await connection.call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                AddPartitionsToTxnRequest(transactions=[wanted]),
                AddPartitionsToTxnResponse,
                timeout_s=self._network.request_timeout_s,
            )
            answers = dict.fromkeys(partitions, error_from(response.error_code))
            for result in response.results_by_transaction:
                for topic in result.topic_results:
                    for each in topic.results_by_partition:
                        at = TopicPartition(topic.name, each.partition_index)
                        answers[at] = _as_partitions_say(error_from(each.partition_error_code))
        except (ClientError, UnsupportedVersionError) as problem:
            # A retriable error: the producer sends the batch again.
            lost: ProtocolError = CoordinatorNotAvailableError(f"the coordinator did not answer: {problem}")
            answers = dict.fromkeys(partitions, lost)
        done(answers)

    async def _connection(self, broker: BrokerInfo) -> PipelinedConnection:
        known = self._links.get(broker.id)
        if known is None or known[0] != broker:
            if known is not None:
                known[1].close()
            known = self._links[broker.id] = broker, self._network.connect(broker, "coordinator")
        return await known[1].get()


def _for_partitions(markers: SendMarkers, partitions: list[TopicPartition]) -> SendMarkers:
    return SendMarkers(
        markers.transactional_id,
        markers.producer_id,
        markers.producer_epoch,
        markers.commits,
        partitions,
        markers.coordinator_epoch,
    )


def _as_partitions_say(error: ProtocolError | None) -> ProtocolError | None:
    """Coordinators answer PRODUCER_FENCED, partitions INVALID_PRODUCER_EPOCH (KIP-588)."""
    return InvalidProducerEpochError(error.message) if isinstance(error, ProducerFencedError) else error
