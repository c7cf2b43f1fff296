"""The face of administration: every call on a cluster, behind one connection, in time."""

from __future__ import annotations

from braidlog.client.admin.acls import AclCalls
from braidlog.client.admin.client import AdminClient
from braidlog.client.admin.cluster_description import ClusterCalls
from braidlog.client.admin.configs import ConfigCalls
from braidlog.client.admin.delegation_tokens import DelegationTokenCalls
from braidlog.client.admin.features import FeatureCalls
from braidlog.client.admin.group_offsets import GroupOffsetCalls
from braidlog.client.admin.groups import GroupCalls
from braidlog.client.admin.log_dirs import LogDirCalls
from braidlog.client.admin.quotas import QuotaCalls
from braidlog.client.admin.reassignments import ReassignmentCalls
from braidlog.client.admin.records import RecordCalls
from braidlog.client.admin.scram import ScramCalls
from braidlog.client.admin.topics import TopicCalls
from braidlog.client.admin.transactions import TransactionCalls


class Admin(
    AdminClient,
    TopicCalls,
    ConfigCalls,
    GroupCalls,
    GroupOffsetCalls,
    RecordCalls,
    TransactionCalls,
    AclCalls,
    QuotaCalls,
    ScramCalls,
    ReassignmentCalls,
    LogDirCalls,
    ClusterCalls,
    FeatureCalls,
    DelegationTokenCalls,
):
    """Administers any Kafka-compatible cluster.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=6)]).raise_for_errors()

    Settings are Kafka's, in snake case or as a mapping with dotted names. Nothing is connected to before the first
    call. Calls block, each for at most `default.api.timeout.ms`; threads may share an Admin, and their requests take
    turns. What a call on many things answers is a `Results`.
    """
