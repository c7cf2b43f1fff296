"""`braidlog brokers`: who belongs to the cluster, and which of them answer."""

from __future__ import annotations

import argparse
import time
from typing import Any, Final

from braidlog.cli.options import add_connection, add_output, broker_number, connect
from braidlog.cli.output import remark_failure, show
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.cluster_call import ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.cluster_description import BrokerDescription
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.outbound.api_versions import api_versions_request
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersionsResponse

_COLUMNS: Final = ("broker", "address", "rack", "controller", "reachable", "answer_ms", "apis", "version")
_PAGE_WITHIN_S: Final = 3.0
_REQUEST: Final = api_versions_request("cli")
_EPILOG: Final = """\
REACHABLE is whether the broker answers from here, at the address that it tells clients; ANSWER-MS is how long it took,
with the connection, and APIS how many kinds of request it offers. VERSION is what braidlog's brokers say on their
metrics pages, where these can be reached. A broker that holds replicas and is not up is shown
without an address. Exit code 1 when one does not answer.

examples:
  braidlog brokers
  braidlog brokers 1 --api-versions         every request that broker 1 offers, with its versions
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("brokers", nargs="*", metavar="ID", type=broker_number, help="only these (default: all)")
    parser.add_argument("--api-versions", action="store_true", help="the requests that each offers, and their versions")
    add_connection(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    with connect(options) as cluster:
        known = _brokers(cluster)
        for broker_id in options.brokers:
            if broker_id not in known:
                raise cluster.absent(broker_id)
        chosen = {each: known[each] for each in sorted(set(options.brokers) or known)}
        if options.api_versions:
            return _show_versions(cluster, chosen, options.output)
        controller_id = admin_over(cluster).describe_cluster().controller_id
        rows = [
            {
                "broker": broker_id,
                "address": None if broker is None else _address(broker),
                "rack": None if broker is None else broker.rack,
                "controller": broker_id == controller_id,
                **_answer(cluster, broker_id, broker),
            }
            for broker_id, broker in chosen.items()
        ]
        answering = {row["broker"]: chosen[row["broker"]] for row in rows if row["reachable"]}
        versions = _versions(cluster, {each: broker for each, broker in answering.items() if broker is not None})
    for row in rows:
        row["version"] = versions.get(row["broker"])
    show(rows, options.output, _COLUMNS)
    return 0 if all(row["reachable"] for row in rows) else 1


def _brokers(cluster: ClusterConnection) -> dict[int, BrokerDescription | None]:
    """Those that are up, and as None those that only hold replicas."""
    up = {each.broker_id: each for each in admin_over(cluster).describe_cluster().brokers}
    holders = {
        broker_id
        for topic in cluster.metadata(None)
        for partition in topic.partitions
        for broker_id in partition.replicas
        if broker_id >= 0
    }
    return {**dict.fromkeys(holders), **up}


def _versions(cluster: ClusterConnection, brokers: dict[int, BrokerDescription]) -> dict[int, str]:
    """Of those whose metrics pages can be read: Kafka's protocol has no word for it."""
    from braidlog.cli.watching.metrics_pages import MetricsPages

    timeout_s = min(cluster.timeout_s, _PAGE_WITHIN_S)
    pages = MetricsPages(cluster.cluster_id, (), timeout_s)
    found = pages.read(admin_over(cluster).within(timeout_s), brokers, ())
    return {broker_id: page.version for broker_id, page in found.read.items()}


def _address(broker: BrokerDescription) -> str:
    return f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}"


def _answer(cluster: ClusterConnection, broker_id: int, broker: BrokerDescription | None) -> dict[str, Any]:
    """Asked once: this is about now, so that nothing is tried again."""
    began = time.monotonic()
    try:
        if broker is None:
            raise cluster.absent(broker_id)
        apis = cluster.run(lambda call: _offered(call, broker_id))
    except (BraidlogError, ProtocolError) as problem:
        remark_failure(problem)
        return {"reachable": False, "answer_ms": None, "apis": None}
    return {"reachable": True, "answer_ms": round((time.monotonic() - began) * 1000, 1), "apis": apis}


async def _offered(call: ClusterCall, broker_id: int) -> int:
    node = await call.node(broker_id)
    return len((await node.call(ApiKey.API_VERSIONS, _REQUEST, ApiVersionsResponse)).api_keys)


def _show_versions(cluster: ClusterConnection, brokers: dict[int, BrokerDescription | None], output: str) -> int:
    found = admin_over(cluster).broker_api_versions(brokers)
    rows = [
        {
            "broker": broker_id,
            "api_key": each.api_key,
            "name": each.name or None,
            "oldest": each.oldest,
            "newest": each.newest,
        }
        for broker_id, versions in found.succeeded.items()
        for each in versions
    ]
    for problem in found.errors.values():
        remark_failure(problem)
    show(rows, output, ("broker", "api_key", "name", "oldest", "newest"))
    return 1 if found.errors else 0
