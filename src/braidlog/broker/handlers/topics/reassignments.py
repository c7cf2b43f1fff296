"""Who replicates and leads a partition: AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders."""

from __future__ import annotations

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.controller.controller import Controller
from braidlog.controller.requests import ElectionType, Reassignment
from braidlog.core.protocol_errors import NONE, NotControllerError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from braidlog.wire.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from braidlog.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class AlterReassignmentsHandler:
    def __init__(self, controller: Controller, authorizer: Authorizer) -> None:
        self._controller = controller
        self._authorizer = authorizer

    async def handle(
        self, request: AlterPartitionReassignmentsRequest, exchange: Exchange
    ) -> AlterPartitionReassignmentsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        wanted = [
            Reassignment(
                TopicPartition(topic.name, partition.partition_index),
                None if partition.replicas is None else tuple(partition.replicas),
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        results = await self._controller.alter_reassignments(wanted)
        by_topic: dict[str, list[ReassignablePartitionResponse]] = {}
        for result in results:
            by_topic.setdefault(result.partition.topic, []).append(
                ReassignablePartitionResponse(
                    partition_index=result.partition.partition,
                    error_code=NONE if result.error is None else result.error.code,
                    error_message=None if result.error is None else result.error.message,
                )
            )
        return AlterPartitionReassignmentsResponse(
            error_message=None,
            responses=[
                ReassignableTopicResponse(name=topic, partitions=partitions) for topic, partitions in by_topic.items()
            ],
        )

    @staticmethod
    def error_response(
        request: AlterPartitionReassignmentsRequest, version: int, error: ProtocolError
    ) -> AlterPartitionReassignmentsResponse:
        response = AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
        # As in Kafka, which says that it is not the controller once, and all else of every partition, too.
        if not isinstance(error, NotControllerError):
            response.responses = [
                ReassignableTopicResponse(
                    name=topic.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=error.code,
                            error_message=error.message,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        return response


class ListReassignmentsHandler:
    def __init__(self, controller: Controller, authorizer: Authorizer) -> None:
        self._controller = controller
        self._authorizer = authorizer

    def handle(
        self, request: ListPartitionReassignmentsRequest, exchange: Exchange
    ) -> ListPartitionReassignmentsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.DESCRIBE)
        wanted: list[TopicPartition] | None = None
        if request.topics is not None:
            wanted = [
                TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes
            ]
        by_topic: dict[str, list[OngoingPartitionReassignment]] = {}
        for move in self._controller.list_reassignments(wanted):
            by_topic.setdefault(move.partition.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=move.partition.partition,
                    replicas=list(move.replicas),
                    adding_replicas=list(move.adding),
                    removing_replicas=list(move.removing),
                )
            )
        return ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[OngoingTopicReassignment(name=topic, partitions=moves) for topic, moves in by_topic.items()],
        )

    @staticmethod
    def error_response(
        request: ListPartitionReassignmentsRequest, version: int, error: ProtocolError
    ) -> ListPartitionReassignmentsResponse:
        response = ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
        # As above; what was asked about comes back without replicas.
        if not isinstance(error, NotControllerError):
            response.topics = [
                OngoingTopicReassignment(
                    name=topic.name,
                    partitions=[OngoingPartitionReassignment(partition_index=each) for each in topic.partition_indexes],
                )
                for topic in request.topics or ()
            ]
        return response


class ElectLeadersHandler:
    """ElectLeaders (api 43): elect preferred or, where allowed, unclean leaders; null asks for every partition."""

    def __init__(self, controller: Controller, authorizer: Authorizer) -> None:
        self._controller = controller
        self._authorizer = authorizer

    async def handle(self, request: ElectLeadersRequest, exchange: Exchange) -> ElectLeadersResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
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
        # Off the controller Kafka names the error with each partition alone; where none is named, it would be lost.
        by_partition = isinstance(error, NotControllerError) and request.topic_partitions
        if version >= 1 and not by_partition:
            response.error_code = error.code
        return response
