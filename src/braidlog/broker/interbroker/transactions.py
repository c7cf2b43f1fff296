"""Transactions over several brokers: markers for partitions that others lead, and what their coordinators verify."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from braidlog.broker.coordinators.add_partitions_manager import error_from
from braidlog.broker.coordinators.marker_writer import MarkerDone, MarkerWriter
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.cluster.image import BrokerInfo, ClusterImage
from braidlog.config.topic_names import TRANSACTIONS_TOPIC
from braidlog.coordinator.effects import Responder, SendMarkers
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    NetworkError,
    NotLeaderOrFollowerError,
    ProtocolError,
    UnsupportedVersionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import NO_BROKER, BrokerId, TopicPartition, by_topic
from braidlog.net.outbound.errors import ClientError
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger("braidlog.transactions")

# From here on a request may name many transactions, and ask without adding (KIP-890).
_MANY_TRANSACTIONS_FROM: Final = 4

Question = tuple[AddPartitionsToTxnTransaction, Responder]


class _Questions:
    """What one coordinator is to be asked, one request at a time."""

    def __init__(self) -> None:
        self.waiting: list[Question] = []
        self.being_asked = False

    def take(self) -> list[Question]:
        """Those of the next request: an answer names its transactional id, so that each is in it once."""
        taken: dict[str, Question] = {}
        later: list[Question] = []
        for question in self.waiting:
            name = question[0].transactional_id
            if name in taken:
                later.append(question)
            else:
                taken[name] = question
        self.waiting = later
        return list(taken.values())


class RemoteTransactions:
    """What concerns this broker's own partitions and coordinators stays a call."""

    def __init__(
        self,
        broker_id: BrokerId,
        network: InterBrokerNetwork,
        image: Callable[[], ClusterImage],
        markers: MarkerWriter,
        coordinated_in: Callable[[str], int],
        tasks: Tasks,
    ) -> None:
        """`coordinated_in`: the partition of `__transaction_state` that a transactional id belongs to."""
        self._broker_id = broker_id
        self._network = network
        self._image = image
        self._markers = markers
        self._coordinated_in = coordinated_in
        self._tasks = tasks
        self._questions: dict[BrokerId, _Questions] = {}
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
        except Exception as problem:
            _log_if_bug(problem, "a marker for", leader)
            lost: ProtocolError = NotLeaderOrFollowerError(f"broker {leader.id} did not take the marker: {problem}")
            results = dict.fromkeys(targets, lost)
        for target in targets:
            done(target, results.get(target, NotLeaderOrFollowerError(f"broker {leader.id} says nothing of it")))

    def ask_coordinator(self, wanted: AddPartitionsToTxnTransaction, responder: Responder) -> bool:
        """False where the coordinator is this broker's.

        While a request is under way to a broker, what else it is to be asked is gathered for the next one.
        """
        image = self._image()
        at = TopicPartition(TRANSACTIONS_TOPIC, self._coordinated_in(wanted.transactional_id))
        info = image.partition(at)
        leader = NO_BROKER if info is None else info.leader
        if leader == self._broker_id:
            return False
        if leader not in image.brokers:
            responder.fail(CoordinatorNotAvailableError("the transaction's coordinator is not known now; try again"))
            return True
        questions = self._questions.setdefault(leader, _Questions())
        questions.waiting.append((wanted, responder))
        if not questions.being_asked:
            questions.being_asked = True
            self._tasks.spawn(f"asking the coordinator on broker {leader}", self._ask(leader, questions))
        return True

    async def _ask(self, leader: BrokerId, questions: _Questions) -> None:
        try:
            while questions.waiting:
                asked = questions.take()
                coordinator = self._image().brokers.get(leader)
                if coordinator is None:
                    lost = NetworkError(f"broker {leader} is gone")
                    for _, responder in asked:
                        responder.fail(lost)
                else:
                    await self._ask_once(coordinator, asked)
        finally:
            questions.being_asked = False

    async def _ask_once(self, coordinator: BrokerInfo, asked: list[Question]) -> None:
        try:
            connection = await self._connection(coordinator)
            if connection.version_for(ApiKey.ADD_PARTITIONS_TO_TXN, None) < _MANY_TRANSACTIONS_FROM:
                raise UnsupportedVersionError("its broker is too old for that")
            response = await connection.call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                AddPartitionsToTxnRequest(transactions=[wanted for wanted, _ in asked]),
                AddPartitionsToTxnResponse,
                timeout_s=self._network.request_timeout_s,
            )
        except Exception as problem:
            _log_if_bug(problem, "a question to", coordinator)
            for wanted, responder in asked:
                if isinstance(problem, UnsupportedVersionError) and wanted.verify_only:
                    # Before Kafka 3.5 nobody verified: such a coordinator cannot, and must not keep producers out.
                    responder.answer(_all_verified(wanted))
                else:
                    # A retriable error: the producer sends the batch again.
                    responder.fail(NetworkError(f"the coordinator did not answer: {problem}"))
            return
        answers = {result.transactional_id: result for result in response.results_by_transaction}
        missing = error_from(response.error_code) or NetworkError("the coordinator's answer says nothing of it")
        for wanted, responder in asked:
            answer = answers.get(wanted.transactional_id)
            if answer is None:
                responder.fail(missing)
            else:
                responder.answer(answer)

    async def _connection(self, broker: BrokerInfo) -> PipelinedConnection:
        known = self._links.get(broker.id)
        if known is None or known[0] != broker:
            if known is not None:
                known[1].close()
            known = self._links[broker.id] = broker, self._network.connect(broker, "coordinator")
        return await known[1].get()

    def close(self) -> None:
        """The broker stops: whoever waits is told that the connection was closed."""
        for _, link in self._links.values():
            link.close()


def _log_if_bug(problem: Exception, what: str, broker: BrokerInfo) -> None:
    """Whoever waits is answered all the same: a transaction must not hang on it."""
    if not isinstance(problem, (ClientError, UnsupportedVersionError)):
        log.error("%s broker %d failed, a bug in braidlog, please report it", what, broker.id, exc_info=problem)


def _for_partitions(markers: SendMarkers, partitions: list[TopicPartition]) -> SendMarkers:
    return SendMarkers(
        markers.transactional_id,
        markers.producer_id,
        markers.producer_epoch,
        markers.commits,
        partitions,
        markers.coordinator_epoch,
    )


def _all_verified(wanted: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions
                ],
            )
            for topic in wanted.topics
        ],
    )
