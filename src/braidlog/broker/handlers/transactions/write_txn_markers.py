"""WriteTxnMarkers (api 27): end transactions in the partitions of this broker.

Sent by a transaction's coordinator, and by an administrator who aborts a hanging transaction that no coordinator
knows of any more.
"""

from __future__ import annotations

from braidlog.broker.coordinators.marker_writer import MarkerWriter
from braidlog.coordinator.effects import SendMarkers
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class WriteTxnMarkersHandler:
    def __init__(self, markers: MarkerWriter) -> None:
        self._markers = markers

    def handle(self, request: WriteTxnMarkersRequest, exchange: Exchange) -> None:
        progress = MarkerResults(exchange)
        for marker in request.markers:
            targets = targets_of(marker)
            progress.outstanding += len(targets)
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                complete = progress.of(marker.producer_id)
                for target in targets:
                    complete(target, InvalidRequestError("a marker names the producer and its epoch"))
                continue
            markers = SendMarkers(
                "",
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                targets,
                marker.coordinator_epoch,
            )
            self._markers.write(markers, progress.of(marker.producer_id))
        progress.release()

    @staticmethod
    def error_response(request: WriteTxnMarkersRequest, version: int, error: ProtocolError) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                _result(marker.producer_id, dict.fromkeys(targets_of(marker), error.code)) for marker in request.markers
            ]
        )


class MarkerResults:
    """A request on its way to its answer: as many results as it has partitions."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        # The request holds one until everything of it was begun.
        self.outstanding = 1
        # By producer, as the answer names them; a producer that is named twice is answered once.
        self._results: dict[int, dict[TopicPartition, int]] = {}

    def of(self, producer_id: int) -> _ProducerResults:
        return _ProducerResults(self, self._results.setdefault(producer_id, {}))

    def release(self) -> None:
        self.outstanding -= 1
        if self.outstanding == 0:
            self._exchange.answer(
                WriteTxnMarkersResponse(
                    markers=[_result(producer_id, results) for producer_id, results in self._results.items()]
                )
            )


class _ProducerResults:
    """The results of one producer."""

    def __init__(self, progress: MarkerResults, results: dict[TopicPartition, int]) -> None:
        self._progress = progress
        self._results = results

    def __call__(self, target: TopicPartition, error: ProtocolError | None) -> None:
        self._results[target] = error.code if error is not None else 0
        self._progress.release()


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
