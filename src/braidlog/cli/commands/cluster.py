"""`braidlog cluster up|status|dump|restore`: several brokers on this machine; how any cluster is; what it agrees on."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.command_tree import BROKER_SETTING, Placeholder
from braidlog.cli.coordination_tree import add_dump, add_restore
from braidlog.cli.options import (
    UINT16_MAX,
    add_connection,
    add_output,
    connect,
    listen_address,
    pairs,
    path_name,
    whole_number,
)
from braidlog.cli.output import remark, show, show_one
from braidlog.cli.replica_states import (
    OFFLINE,
    ONLINE,
    UNDER_REPLICATED,
    UP,
    broker_logs,
    broker_rows,
    partition_rows,
    states_text,
)
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.local_cluster.local_cluster import ClusterAddresses, LocalCluster

DEFAULT_DATA: Final = "./cluster-data"
DEFAULT_LISTEN: Final = "127.0.0.1:9092"

_MOST_BROKERS: Final = 100
# Each broker has its own.
_OF_ONE_BROKER: Final = ("advertised.listeners", "broker.id", "listeners", "log.dir", "log.dirs", "zookeeper.connect")
_UP_EPILOG: Final = """\
Starts a ZooKeeper (from PySpark's jars, or Debian's; Java 17 or newer) and the brokers, each a process of its own, says
where they are, and stops all of them on Ctrl-C or SIGTERM: the brokers first, then ZooKeeper. Data and logs stay in DIR
(./cluster-data), and the next start goes on with them. A broker that dies is reported, and the others go on.

A topic has three replicas unless it is created with another number, or as many as there are brokers; of three, two have
to be in sync for acks=all (min.insync.replicas). So have the internal topics. Everything is meant for one machine.

examples:
  braidlog cluster up                                     brokers on 127.0.0.1:9092, 9093 and 9094
  braidlog cluster up --brokers 5 --listen 127.0.0.1:19092 --data /srv/cluster
  braidlog cluster up --zookeeper 127.0.0.1:2181/kafka    on one that runs already
"""
_STATUS_EPILOG: Final = """\
A partition is offline without a leader, and under-replicated with fewer replicas in sync than it has. A replica is
online (in sync), not in sync, missing (its broker is up and has no log of it) or offline. Without --all only partitions
where something is wrong are shown; --output json always has all. Exit code 1 when something is wrong.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    up = verbs.add_parser("up", help="a ZooKeeper and several brokers on this machine, until they are stopped")
    up.epilog = _UP_EPILOG
    up.add_argument(
        "--brokers", metavar="N", type=_broker_count, help="how many (default 3, or as many as the data has)"
    )
    up.add_argument("--zookeeper", metavar="HOST:PORT", help="one that runs already; also several, also with a chroot")
    up.add_argument("--data", metavar="DIR", type=path_name, default=DEFAULT_DATA, help=f"default {DEFAULT_DATA}")
    up.add_argument(
        "--listen",
        metavar="HOST:FIRST_PORT",
        type=listen_address,
        default=DEFAULT_LISTEN,
        help=f"where the first broker listens, the others on the ports after it (default {DEFAULT_LISTEN}); port 0 "
        "picks free ones",
    )
    up.add_argument(
        "--set",
        metavar=Placeholder("KEY=VALUE", BROKER_SETTING),
        action="append",
        default=[],
        help="a setting of all brokers; may be repeated",
    )
    add_output(up)
    up.set_defaults(run=run_up)

    status = verbs.add_parser("status", help="controller, brokers, partitions and the state of every replica")
    status.epilog = _STATUS_EPILOG
    status.add_argument("--all", action="store_true", help="every partition, also those that are well")
    add_connection(status)
    add_output(status)
    status.set_defaults(run=run_status)

    add_dump(verbs.add_parser("dump", help="what the cluster agrees on, topics to users, as a file; for backups"))
    add_restore(verbs.add_parser("restore", help="put back what `cluster dump` wrote, for a cluster that is stopped"))


def _broker_count(text: str) -> int:
    return whole_number(text, 1, _MOST_BROKERS, "a number of brokers: a positive whole number")


# up


def run_up(options: argparse.Namespace) -> int:
    from braidlog.config.listeners import EVERY_INTERFACE
    from braidlog.local_cluster.cluster_directory import DEFAULT_BROKERS, ClusterDirectory
    from braidlog.local_cluster.local_cluster import LocalCluster

    settings = pairs(options.set, "--set")
    for name in _OF_ONE_BROKER:
        if name in settings:
            raise UserError(f"--set {name}: each broker has its own; see --listen, --data and --zookeeper")
    host, _, first = options.listen.rpartition(":")
    if host in EVERY_INTERFACE:
        raise UserError(
            f"--listen {host}: brokers tell clients, and each other, to connect to this address, and nobody can; "
            "name one of this machine's"
        )
    directory = ClusterDirectory(Path(options.data), options.zookeeper, remark)
    try:
        count = options.brokers or directory.brokers or DEFAULT_BROKERS
        cluster = LocalCluster(directory, host, _ports(int(first), count), settings, remark)
        return _run_until_stopped(cluster, options)
    finally:
        directory.close()


def _ports(first: int, count: int) -> list[int]:
    from braidlog.local_cluster.zookeeper import lasting_ports

    if first == 0:
        return lasting_ports(count)
    if first + count - 1 > UINT16_MAX:
        raise UserError(f"--listen: {count} brokers from port {first} on would end above {UINT16_MAX}")
    return list(range(first, first + count))


def _run_until_stopped(cluster: LocalCluster, options: argparse.Namespace) -> int:
    addresses = cluster.start()
    try:
        _show_addresses(addresses, cluster.seconds, options)
        cluster.watch()
    except KeyboardInterrupt:
        # As for `serve`, to be stopped is how it ends well; a second signal kills.
        remark("stopping the brokers, then ZooKeeper")
    finally:
        cluster.stop()
    if cluster.died:
        raise UserError(f"not everything ended as it should: {', '.join(cluster.died)}")
    return 0


def _show_addresses(cluster: ClusterAddresses, seconds: float, options: argparse.Namespace) -> None:
    brokers = [
        {
            "broker": each.broker_id,
            "address": each.address,
            "pid": each.pid,
            "metrics": f"http://{each.http}/metrics" if each.http else None,
            "log": each.log,
        }
        for each in cluster.brokers
    ]
    if options.output == "json":
        row = {
            "cluster_id": cluster.cluster_id,
            "bootstrap_servers": cluster.bootstrap_servers,
            "zookeeper": {"connect": cluster.zookeeper, "pid": cluster.zookeeper_pid},
            "brokers": brokers,
            "seconds": round(seconds, 2),
        }
        # One line, which is all that a script has to wait for.
        print(json.dumps(row), flush=True)
        return
    pid = "" if cluster.zookeeper_pid is None else f" (pid {cluster.zookeeper_pid})"
    print(f"cluster {cluster.cluster_id} is ready after {seconds:.1f} s, on the ZooKeeper at {cluster.zookeeper}{pid}")
    show(brokers, "table")
    print(f"clients connect with --bootstrap {cluster.bootstrap_servers}")
    print(f"Ctrl-C stops it; `braidlog cluster up --data {options.data}` goes on with its data", flush=True)


# status


def run_status(options: argparse.Namespace) -> int:
    from braidlog.client.admin.admin import admin_over

    with connect(options) as cluster:
        admin = admin_over(cluster)
        described = admin.describe_cluster()
        topics = list(admin.describe_topics().succeeded.values())
        up = {each.broker_id: each for each in described.brokers}
        logs, silent = broker_logs(admin, up)
    partitions = partition_rows(topics, up, logs)
    brokers = broker_rows(partitions, up, silent)
    count = Counter(row["state"] for row in partitions)
    counts = {"partitions": len(partitions), "offline": count[OFFLINE], "under_replicated": count[UNDER_REPLICATED]}
    if options.output == "json":
        row = {
            "cluster_id": described.cluster_id,
            "controller": described.controller_id,
            "counts": counts,
            "brokers": brokers,
            "partitions": partitions,
        }
        show_one(row, "json")
    else:
        show_one(
            {
                "cluster": described.cluster_id,
                "controller": described.controller_id,
                "brokers": f"{sum(row['state'] == UP for row in brokers)} of {len(brokers)} up",
                "partitions": f"{counts['partitions']}: {counts['offline']} offline, "
                f"{counts['under_replicated']} under-replicated",
            },
            "table",
        )
        print()
        show(brokers, "table", ("broker", "address", "rack", "state", "leads", "replicas", "not_online"))
        shown = [row for row in partitions if options.all or not _is_well(row)]
        if shown:
            print()
            show([_as_text(row) for row in shown], "table")
    are_up = all(row["state"] == UP for row in brokers)
    is_well = are_up and described.controller_id is not None and all(map(_is_well, partitions))
    return 0 if is_well else 1


def _is_well(row: dict[str, Any]) -> bool:
    return row["state"] == ONLINE and all(replica["state"] == ONLINE for replica in row["replicas"])


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "replicas": states_text(row["replicas"])}
