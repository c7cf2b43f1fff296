"""ListClientMetricsResources (api 74): the subscriptions to metrics of clients (KIP-714), of which there are none.

Brokers of KRaft clusters offer it, also where nobody may push metrics; those of ZooKeeper clusters do not.
"""

from __future__ import annotations

from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)


class ListClientMetricsResourcesHandler:
    def handle(
        self, request: ListClientMetricsResourcesRequest, exchange: Exchange
    ) -> ListClientMetricsResourcesResponse:
        return ListClientMetricsResourcesResponse()

    @staticmethod
    def error_response(
        request: ListClientMetricsResourcesRequest, version: int, error: ProtocolError
    ) -> ListClientMetricsResourcesResponse:
        return ListClientMetricsResourcesResponse(error_code=error.code)
