"""The cluster as a whole: its brokers, and what each of them speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import AnyBrokerStrategy, BrokerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, listed
from braidlog.client.broker_errors import check
from braidlog.client.requests.metadata import METADATA, metadata_request
from braidlog.core.errors import UserError
from braidlog.net.outbound.api_versions import api_versions_request
from braidlog.security.acls import AclOperation, operations_of
from braidlog.wire.apis import API_VERSIONS, APIS
from braidlog.wire.generated.api_versions import ApiVersionsResponse
from braidlog.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from braidlog.wire.generated.metadata import MetadataResponse

DESCRIBE_CLUSTER: Final = 60
# The first version with brokers that are registered but fenced.
_WITH_FENCED: Final = 2


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    broker_id: int
    host: str
    port: int
    rack: str | None
    # Registered, but not serving; listed on request, by brokers from 4.0 on.
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    # Of a cluster without ZooKeeper it is any broker: each passes on what is for the controller.
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    # None unless they were asked for.
    authorized_operations: frozenset[AclOperation] | None


class ApiVersionRange(NamedTuple):
    """An API that a broker offers; the name is empty of one that is not known here."""

    api_key: int
    name: str
    oldest: int
    newest: int


def describe_cluster(
    driver: AdminApiDriver, *, authorized_operations: bool = False, fenced_brokers: bool = False
) -> ClusterDescription:
    async def describe(node: BrokerConnection) -> ClusterDescription:
        if not node.offers(DESCRIBE_CLUSTER):
            return await _from_metadata(node)
        if fenced_brokers and node.version_for(DESCRIBE_CLUSTER) < _WITH_FENCED:
            raise UserError("fenced_brokers: the broker is too old to list them; leave it out")
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=authorized_operations, include_fenced_brokers=fenced_brokers
        )
        answer = await node.call(DESCRIBE_CLUSTER, request, DescribeClusterResponse)
        check(answer.error_code, "the cluster", answer.error_message)
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id if answer.controller_id >= 0 else None,
            brokers=tuple(
                BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
                for each in sorted(answer.brokers, key=lambda each: each.broker_id)
            ),
            authorized_operations=operations_of(answer.cluster_authorized_operations),
        )

    return driver.ask_one(AnyBrokerStrategy(), describe)


def broker_api_versions(
    driver: AdminApiDriver, broker_ids: Many[int] | None = None
) -> Results[int, tuple[ApiVersionRange, ...]]:
    wanted = driver.broker_ids() if broker_ids is None else listed(broker_ids, "broker_ids")
    request = api_versions_request("admin")

    async def versions(node: BrokerConnection, some: list[int]) -> dict[int, tuple[ApiVersionRange, ...]]:
        answer = await node.call(API_VERSIONS, request, ApiVersionsResponse)
        check(answer.error_code, f"broker {some[0]}")
        return {
            some[0]: tuple(
                ApiVersionRange(
                    each.api_key,
                    APIS[each.api_key].name if each.api_key in APIS else "",
                    each.min_version,
                    each.max_version,
                )
                for each in sorted(answer.api_keys, key=lambda each: each.api_key)
            )
        }

    where: BrokerStrategy[int] = BrokerStrategy(lambda broker_id: broker_id)
    return driver.ask(wanted, where, versions)


async def _from_metadata(node: BrokerConnection) -> ClusterDescription:
    """For brokers before 2.8."""
    answer = await node.call(METADATA, metadata_request([], create_topics=True), MetadataResponse)
    return ClusterDescription(
        cluster_id=answer.cluster_id or "",
        controller_id=answer.controller_id if answer.controller_id >= 0 else None,
        brokers=tuple(
            BrokerDescription(each.node_id, each.host, each.port, each.rack)
            for each in sorted(answer.brokers, key=lambda each: each.node_id)
        ),
        authorized_operations=None,
    )
