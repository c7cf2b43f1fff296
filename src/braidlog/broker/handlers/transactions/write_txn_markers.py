"""WriteTxnMarkers (api 27): end transactions in the partitions of this broker.

Sent by a transaction's coordinator, and by an administrator who aborts a hanging transaction that no coordinator
knows of any more.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.marker_writer import MarkerWriter
from braidlog.broker.requests.pending_results import PendingResults
from braidlog.coordinator.effects import SendMarkers
from braidlog.core.protocol_errors import NONE, InvalidRequestError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.security.acls import CLUSTER_RESOURCE, AclOperation
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# The error code of each partition, by producer.
MarkerResults: TypeAlias = PendingResults[tuple[int, TopicPartition], int]


class WriteTxnMarkersHandler:
    def __init__(self, markers: MarkerWriter, authorizer: Authorizer) -> None:
        self._markers = markers
        self._authorizer = authorizer

    def handle(self, request: WriteTxnMarkersRequest, exchange: Exchange) -> None:
        # An administrator who may alter the cluster need not be a broker.
        if not self._authorizer.authorize(exchange, AclOperation.ALTER, *CLUSTER_RESOURCE, log_if_denied=False):
            self._authorizer.check_cluster(exchange, AclOperation.CLUSTER_ACTION)
        results: MarkerResults = PendingResults(lambda codes: exchange.answer(_response(request, codes)))
        for marker in request.markers:
            targets = targets_of(marker)
            results.expect(len(targets))
            done = partial(_put, results, marker.producer_id)
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                for target in targets:
                    done(target, InvalidRequestError("a marker names the producer and its epoch"))
                continue
            markers = SendMarkers(
                "",
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                targets,
                marker.coordinator_epoch,
            )
            self._markers.write(markers, done)
        results.all_asked()

    @staticmethod
    def error_response(request: WriteTxnMarkersRequest, version: int, error: ProtocolError) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                _result(marker.producer_id, dict.fromkeys(targets_of(marker), error.code)) for marker in request.markers
            ]
        )


def _put(results: MarkerResults, producer_id: int, target: TopicPartition, error: ProtocolError | None) -> None:
    results.put((producer_id, target), error.code if error is not None else NONE)


def _response(request: WriteTxnMarkersRequest, codes: dict[tuple[int, TopicPartition], int]) -> WriteTxnMarkersResponse:
    """A producer that is named twice is answered once."""
    by_producer: dict[int, dict[TopicPartition, int]] = {marker.producer_id: {} for marker in request.markers}
    for (producer_id, target), code in codes.items():
        by_producer[producer_id][target] = code
    return WriteTxnMarkersResponse(markers=[_result(producer_id, each) for producer_id, each in by_producer.items()])


def targets_of(marker: WritableTxnMarker) -> list[TopicPartition]:
    """Each once, however often it is named."""
    named = (TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
    return list(dict.fromkeys(named))


def _result(producer_id: int, results: dict[TopicPartition, int]) -> WritableTxnMarkerResult:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for target, code in results.items():
        topic = topics.setdefault(target.topic, WritableTxnMarkerTopicResult(name=target.topic, partitions=[]))
        topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=target.partition, error_code=code))
    return WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
