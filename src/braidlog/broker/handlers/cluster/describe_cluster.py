"""The cluster as clients see it: DescribeCluster, ListClientMetricsResources."""

from __future__ import annotations

from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.core.protocol_errors import MismatchedEndpointTypeError, ProtocolError, UnsupportedEndpointTypeError
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AUTHORIZED_OPERATIONS_OMITTED, AclOperation
from braidlog.wire.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from braidlog.wire.generated.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


class DescribeClusterHandler:
    """DescribeCluster (api 60): cluster id, controller and brokers."""

    def __init__(self, cache: MetadataCache, authorizer: Authorizer) -> None:
        self._cache = cache
        self._authorizer = authorizer

    def handle(self, request: DescribeClusterRequest, exchange: Exchange) -> DescribeClusterResponse:
        if request.endpoint_type == CONTROLLERS:
            raise MismatchedEndpointTypeError("this listener is a broker's; ask for brokers (endpoint type 1)")
        if request.endpoint_type != BROKERS:
            raise UnsupportedEndpointTypeError(f"endpoint type {request.endpoint_type} is unknown")
        image = self._cache.image
        return DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
                for broker in image.brokers.values()
                if (endpoint := broker.endpoint(exchange.channel.listener)) is not None
            ],
            cluster_authorized_operations=(
                self._authorizer.cluster_operations(exchange)
                if request.include_cluster_authorized_operations
                else AUTHORIZED_OPERATIONS_OMITTED
            ),
        )

    @staticmethod
    def error_response(request: DescribeClusterRequest, version: int, error: ProtocolError) -> DescribeClusterResponse:
        return DescribeClusterResponse(error_code=error.code, error_message=error.message)


class ListClientMetricsResourcesHandler:
    """ListClientMetricsResources (api 74): the subscriptions to metrics of clients (KIP-714), of which there are none.

    Brokers of KRaft clusters offer it, also where no client may push metrics; those of ZooKeeper clusters do not.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handle(
        self, request: ListClientMetricsResourcesRequest, exchange: Exchange
    ) -> ListClientMetricsResourcesResponse:
        self._authorizer.check_cluster(exchange, AclOperation.DESCRIBE_CONFIGS)
        return ListClientMetricsResourcesResponse()

    @staticmethod
    def error_response(
        request: ListClientMetricsResourcesRequest, version: int, error: ProtocolError
    ) -> ListClientMetricsResourcesResponse:
        return ListClientMetricsResourcesResponse(error_code=error.code)
