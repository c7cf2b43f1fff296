from __future__ import annotations

from braidlog.broker.handlers.cluster.describe_cluster import CONTROLLERS, DescribeClusterHandler
from braidlog.core.protocol_errors import (
    MismatchedEndpointTypeError,
    UnknownServerError,
    UnsupportedEndpointTypeError,
)
from braidlog.security.acls import AUTHORIZED_OPERATIONS_OMITTED, OPERATIONS, AclResourceType, operations_of
from braidlog.wire.generated.describe_cluster import DescribeClusterRequest
from braidlog.wire.generated.list_client_metrics_resources import ListClientMetricsResourcesRequest
from support.asked_broker import AskedBroker, on_broker


@on_broker
async def test_the_cluster_has_an_id_a_controller_and_brokers(broker: AskedBroker) -> None:
    answer = await broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert answer.cluster_id == broker.parts.controller.image.cluster_id != ""
    assert answer.controller_id == 1
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "simulated", 9092)]
    assert operations_of(answer.cluster_authorized_operations) == frozenset(OPERATIONS[AclResourceType.CLUSTER])
    answer = await broker.ask(DescribeClusterRequest(), 1)
    assert answer.cluster_authorized_operations == AUTHORIZED_OPERATIONS_OMITTED


@on_broker
async def test_controllers_are_not_asked_for_at_a_broker(broker: AskedBroker) -> None:
    answer = await broker.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), 1)
    assert answer.error_code == MismatchedEndpointTypeError.code
    answer = await broker.ask(DescribeClusterRequest(endpoint_type=9), 1)
    assert answer.error_code == UnsupportedEndpointTypeError.code


@on_broker
async def test_no_client_pushes_metrics(broker: AskedBroker) -> None:
    answer = await broker.ask(ListClientMetricsResourcesRequest(), 0)
    assert (answer.error_code, answer.client_metrics_resources) == (0, [])


def test_a_failure_is_told_with_its_message() -> None:
    answer = DescribeClusterHandler.error_response(DescribeClusterRequest(), 1, UnknownServerError("oh"))
    assert (answer.error_code, answer.error_message) == (UnknownServerError.code, "oh")
