"""Where everything lies in the store: Kafka's own znode paths, so that operators and Kafka's tools recognise them."""

from __future__ import annotations

from typing import Final

BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
TOPICS: Final = "/brokers/topics"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CONSUMERS: Final = "/consumers"
FEATURE: Final = "/feature"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = "/config/changes/config_change_"

ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"

ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT: Final = "/log_dir_event_notification/log_dir_event_"

# Made by the first broker that has a secret for tokens.
DELEGATION_TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE: Final = "/delegation_token/token_changes/token_change_"

# Made by the first broker that has an authorizer; below each of the first two is a node for every type of resource.
LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
LITERAL_ACL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
# The first part of a notification's name, in either directory.
ACL_CHANGE: Final = "acl_changes_"

# The outermost names of all of these: beside them a ZooKeeper may have nodes of other applications.
ROOTS: Final = frozenset(
    (
        "admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch", "delegation_token",
        "feature", "isr_change_notification", "kafka-acl", "kafka-acl-changes", "kafka-acl-extended",
        "kafka-acl-extended-changes", "latest_producer_id_block", "log_dir_event_notification",
    )
)  # fmt: skip

CONFIG_KINDS: Final = ("topics", "clients", "users", "brokers", "ips", "groups")
# Kafka keeps settings of groups in KRaft alone. Here they lie where its other ones do, once there are any: an ensemble
# of Kafka stays as it is.
GROUP_CONFIGS: Final = f"{CONFIG}/groups"

# What a broker creates empty when it first meets a store, parents first.
PERSISTENT_PATHS: Final = (
    CONSUMERS,
    CLUSTER,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(path for path in (f"{CONFIG}/{kind}" for kind in CONFIG_KINDS) if path != GROUP_CONFIGS),
)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def config(entity: str) -> str:
    """`entity` is a path below /config: `topics/orders`, `brokers/1`, `brokers/<default>`, `groups/billing`."""
    return f"{CONFIG}/{entity}"


def deleted_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def delegation_token(token_id: str) -> str:
    return f"{DELEGATION_TOKENS}/{token_id}"


def consumer_offsets(group_id: str) -> str:
    """Where the offsets lay that groups committed before Kafka kept them in a topic."""
    return f"{CONSUMERS}/{group_id}/offsets"


def consumer_offset(group_id: str, topic_name: str, index: int) -> str:
    return f"{CONSUMERS}/{group_id}/offsets/{topic_name}/{index}"
