"""The cluster and its brokers as answers describe them."""

from __future__ import annotations

import pytest

from braidlog.client.admin import cluster_description
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.client.requests.metadata import METADATA
from braidlog.core.errors import UserError
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
)
from braidlog.wire.generated.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponseBroker
from support.admin_fakes import asking


def test_the_cluster_and_its_brokers() -> None:
    answer = DescribeClusterResponse(
        cluster_id="c",
        controller_id=-1,
        brokers=[
            DescribeClusterBroker(broker_id=2, host="b", port=2, rack="r"),
            DescribeClusterBroker(broker_id=1, host="a", port=1),
        ],
    )
    admin, _ = asking({cluster_description.DESCRIBE_CLUSTER: answer})
    found = admin.describe_cluster()
    assert (found.cluster_id, found.controller_id, found.authorized_operations) == ("c", None, None)
    assert found.brokers == (BrokerDescription(1, "a", 1, None), BrokerDescription(2, "b", 2, "r"))
    older, _ = asking({cluster_description.DESCRIBE_CLUSTER: answer}, {cluster_description.DESCRIBE_CLUSTER: 1})
    with pytest.raises(UserError, match="too old to list"):
        older.describe_cluster(fenced_brokers=True)


def test_a_broker_from_before_the_call_is_asked_for_metadata() -> None:
    brokers = [MetadataResponseBroker(node_id=1, host="a", port=1)]
    admin, _ = asking({METADATA: MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1)})
    found = admin.describe_cluster()
    assert (found.cluster_id, found.controller_id) == ("c", 1)
    assert found.brokers == (BrokerDescription(1, "a", 1, None),)


def test_apis_by_name_and_those_without_one() -> None:
    answer = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=9999, min_version=0, max_version=1),
            ApiVersion(api_key=3, min_version=0, max_version=12),
        ]
    )
    admin, _ = asking({API_VERSIONS: answer})
    assert admin.broker_api_versions()[1] == ((3, "Metadata", 0, 12), (9999, "", 0, 1))
