"""ElectLeaders (api 43): elect preferred or, where allowed, unclean leaders; null asks for every partition."""

from __future__ import annotations

from braidlog.controller.controller import Controller
from braidlog.controller.requests import ElectionType
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


class ElectLeadersHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(self, request: ElectLeadersRequest, exchange: Exchange) -> ElectLeadersResponse:
        wanted: list[TopicPartition] | None = None
        if request.topic_partitions is not None:
            wanted = [
                TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
            ]
        kind = request.election_type if exchange.version >= 1 else ElectionType.PREFERRED
        results = await self._controller.elect_leaders(kind, wanted)
        by_topic: dict[str, list[PartitionResult]] = {}
        for result in results:
            by_topic.setdefault(result.partition.topic, []).append(
                PartitionResult(
                    partition_id=result.partition.partition,
                    error_code=NONE if result.error is None else result.error.code,
                    error_message=None if result.error is None else result.error.message,
                )
            )
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=topic, partition_result=partitions)
                for topic, partitions in by_topic.items()
            ]
        )

    @staticmethod
    def error_response(request: ElectLeadersRequest, version: int, error: ProtocolError) -> ElectLeadersResponse:
        response = ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic.topic,
                    partition_result=[
                        PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                        for index in topic.partitions
                    ],
                )
                for topic in request.topic_partitions or []
            ]
        )
        if version >= 1:
            response.error_code = error.code
        return response
