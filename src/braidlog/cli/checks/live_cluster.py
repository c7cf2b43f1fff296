"""A running cluster: can clients reach what it advertises, and is it set up to keep what it acknowledges."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

from braidlog.cli.checks.data_directories import judge_disk
from braidlog.cli.checks.finding import Finding, listing, ok, problem, warning
from braidlog.cli.commands.configs import settings_of_topics
from braidlog.client.admin.admin import admin_over
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.cluster_view import NO_LEADER, TopicView
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError

_MIN_ISR: Final = "min.insync.replicas"
_UNCLEAN: Final = "unclean.leader.election.enable"


def check_cluster(cluster: ClusterConnection) -> list[Finding]:
    topics = cluster.metadata(None)
    findings = [ok("connection", f"cluster {cluster.cluster_id} answers at {cluster.address}")]
    findings += check_advertised(cluster)
    findings += check_partitions(topics)
    findings += _check_log_dirs(cluster)
    findings += check_safety(_safety_of(cluster, topics), len(cluster.addresses))
    return findings


# Advertised listeners


def check_advertised(cluster: ClusterConnection) -> list[Finding]:
    """Every client is sent on to these addresses, whatever it first connected to."""
    findings: list[Finding] = []
    for broker_id, (host, port) in sorted(cluster.addresses.items()):
        message = f"broker {broker_id} tells clients to connect to {host}:{port}"
        advice = f"set advertised.listeners of broker {broker_id} to an address that clients reach, and start it again"
        findings.append(_check_address(cluster, host, port, message, advice))
    return findings


def _check_address(cluster: ClusterConnection, host: str, port: int, message: str, advice: str) -> Finding:
    name = "advertised listener"
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as reason:
        return problem(name, f"{message}, which cannot be looked up from here ({reason.strerror or reason})", advice)
    local_only = all(_is_loopback(address) for address in addresses)
    if local_only and not _is_loopback(cluster.peer):
        return problem(name, f"{message}, which on every other machine is that machine itself", advice)
    try:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with ClusterConnection(address, cluster.timeout_s, cluster.settings) as there:
            there.metadata([])
            if there.cluster_id != cluster.cluster_id:
                return problem(name, f"{message}, where another cluster answers ({there.cluster_id})", advice)
    except UserError as reason:
        cause = _system_error(reason)
        if cause is not None:
            return problem(name, f"{message}, where nothing answers from here ({cause.strerror or cause})", advice)
        return problem(name, f"{message}, where something else answers ({reason})", advice)
    reach = "on this machine only" if local_only else "from here"
    return ok(name, f"{message}, which works {reach}")


def _system_error(reason: BaseException) -> OSError | None:
    """What the system said, if there was no answer at all."""
    cause: BaseException | None = reason
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    return cause


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


# Partitions and directories


def check_partitions(topics: Sequence[TopicView]) -> list[Finding]:
    leaderless: list[str] = []
    behind: list[str] = []
    count = 0
    for topic in topics:
        for partition in topic.partitions:
            count += 1
            name = f"{topic.name}-{partition.index}"
            if partition.leader == NO_LEADER:
                leaderless.append(name)
            elif len(partition.isr) < len(partition.replicas):
                behind.append(name)
    findings: list[Finding] = []
    if leaderless:
        findings.append(
            problem(
                "leaders",
                f"{len(leaderless)} of {count} partitions have no leader: {listing(leaderless)}",
                "start the brokers that hold them; `braidlog topics describe --unavailable` shows which",
            )
        )
    else:
        findings.append(ok("leaders", f"all {count} partitions have a leader"))
    if behind:
        findings.append(
            warning(
                "replicas",
                f"{len(behind)} of {count} partitions have replicas out of sync: {listing(behind)}",
                "see that their brokers run and keep up; `braidlog topics describe --under-replicated` shows which",
            )
        )
    return findings


def _check_log_dirs(cluster: ClusterConnection) -> list[Finding]:
    logs = admin_over(cluster)
    findings: list[Finding] = []
    for broker_id in cluster.broker_ids:
        try:
            found = logs.describe_log_dirs([broker_id], partitions=[])[broker_id]
        except (UserError, ProtocolError):
            # That the broker cannot be reached is reported by the check of what it advertises.
            continue
        for directory in found:
            where = f"broker {broker_id}: {directory.path}"
            if directory.error is not None:
                advice = "mend the disk and start the broker again; its log says what failed"
                findings.append(problem("data directory", f"{where} is offline", advice))
            elif directory.total_bytes and directory.usable_bytes is not None:
                findings.append(judge_disk(where, directory.total_bytes, directory.usable_bytes))
    return findings


# Settings that decide what survives


class TopicSafety(NamedTuple):
    name: str
    replicas: int
    min_insync: int
    unclean_election: bool


def _safety_of(cluster: ClusterConnection, topics: Sequence[TopicView]) -> list[TopicSafety]:
    replicas = {
        topic.name: min(len(partition.replicas) for partition in topic.partitions)
        for topic in topics
        if topic.partitions and topic.error_code == NONE and not topic.is_internal
    }
    found: list[TopicSafety] = []
    for name, configs in settings_of_topics(cluster, sorted(replicas), (_MIN_ISR, _UNCLEAN)).items():
        values = {name: config.value for name, config in configs.items()}
        found.append(TopicSafety(name, replicas[name], int(values.get(_MIN_ISR) or 1), values.get(_UNCLEAN) == "true"))
    return found


def check_safety(topics: Sequence[TopicSafety], brokers: int) -> list[Finding]:
    name = "replication"
    findings: list[Finding] = []
    wishful = [topic.name for topic in topics if topic.replicas < topic.min_insync]
    if wishful:
        findings.append(
            warning(
                name,
                f"fewer replicas than {_MIN_ISR}, so that acks=all means fewer copies than it says: {listing(wishful)}",
                f"lower {_MIN_ISR} with `braidlog configs alter`, or give the topics more replicas",
            )
        )
    brittle = [topic.name for topic in topics if topic.replicas == topic.min_insync > 1]
    if brittle:
        findings.append(
            warning(
                name,
                f"as many replicas as {_MIN_ISR}, so that one broker down refuses acks=all: {listing(brittle)}",
                f"have one replica more than {_MIN_ISR}",
            )
        )
    if brokers > 1:
        findings += _check_copies(topics)
    elif not findings:
        findings.append(ok(name, "one broker: every record has one copy, and acks=all means that one"))
    unclean = [topic.name for topic in topics if topic.unclean_election]
    if unclean:
        findings.append(
            warning(
                "unclean election",
                f"a replica that lags may become leader and drop acknowledged records: {listing(unclean)}",
                f"set {_UNCLEAN}=false unless being up matters more than the records",
            )
        )
    else:
        findings.append(ok("unclean election", "off: only replicas in sync become leaders"))
    return findings


def _check_copies(topics: Sequence[TopicSafety]) -> list[Finding]:
    """What only a cluster of several brokers can do better."""
    name = "replication"
    findings: list[Finding] = []
    single = [topic.name for topic in topics if topic.replicas == 1]
    if single:
        findings.append(
            warning(
                name,
                f"only one copy of {listing(single)}",
                "create topics with --replication-factor 3, so that a broker can fail",
            )
        )
    loose = [topic.name for topic in topics if topic.replicas > 1 and topic.min_insync == 1]
    if loose:
        findings.append(
            warning(
                name,
                f"with {_MIN_ISR}=1 acks=all is content with the leader alone: {listing(loose)}",
                f"set {_MIN_ISR}=2 where acknowledged records must survive a broker",
            )
        )
    if not findings:
        findings.append(ok(name, f"every topic has more replicas than {_MIN_ISR}, which is above 1"))
    return findings
