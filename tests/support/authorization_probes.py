"""What each api asks for, and what Kafka 3.9 answers to who may and who may not (see `authorization_matrix.py`).

A request does nothing, or something that may be done often: to a topic that is there (`orders-eu`) or is not
(`orders-no`), a group (`readers-eu`, `readers-no`), a transactional id (`tx-eu`), and a user (`bob`).
"""

from __future__ import annotations

from typing import Any, Final

from braidlog.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.authorization_matrix import OK, Probe, Right, World
from support.samples import BASE_TIMESTAMP_MS

TOPIC: Final = "orders-eu"
NO_TOPIC: Final = "orders-no"
GROUP: Final = "readers-eu"
NO_GROUP: Final = "readers-no"
TXN: Final = "tx-eu"
# Who has a token, and who gets more and more of them.
OWNER: Final = "bob"
NEXT_OWNER: Final = "bea"
# Of a producer that nobody knows.
NO_PRODUCER: Final = {"producer_id": 987_654_321, "producer_epoch": 0}

NO_TOPIC_RIGHT: Final = "TOPIC_AUTHORIZATION_FAILED"
NO_GROUP_RIGHT: Final = "GROUP_AUTHORIZATION_FAILED"
NO_TXN_RIGHT: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NO_CLUSTER_RIGHT: Final = "CLUSTER_AUTHORIZATION_FAILED"
NO_TOKENS: Final = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
NO_MAPPING: Final = "INVALID_PRODUCER_ID_MAPPING"
NO_PARTITION: Final = "UNKNOWN_TOPIC_OR_PARTITION"


def topic(operation: AclOperation, name: str = TOPIC) -> Right:
    return Right(AclResourceType.TOPIC, name, operation)


def group(operation: AclOperation, name: str = GROUP) -> Right:
    return Right(AclResourceType.GROUP, name, operation)


def txn(operation: AclOperation) -> Right:
    return Right(AclResourceType.TRANSACTIONAL_ID, TXN, operation)


def cluster(operation: AclOperation) -> Right:
    return Right(AclResourceType.CLUSTER, CLUSTER_NAME, operation)


READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
SEE, SET = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def records(producer_id: int = -1, *, transactional: bool = False) -> bytes:
    record = Record(0, BASE_TIMESTAMP_MS, None, b"value", ())
    epoch = 0 if producer_id >= 0 else -1
    sequence = 0 if producer_id >= 0 else -1
    return bytes(
        build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def produce(**more: Any) -> dict[str, Any]:
    data = {"name": TOPIC, "partition_data": [{"index": 0, "records": more.pop("records", None) or records()}]}
    return {"acks": -1, "timeout_ms": 30_000, "topic_data": [data], **more}


def fetch(**more: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    named = {"topic": TOPIC, **more.pop("named", {}), "partitions": [partition]}
    return {"max_bytes": 1000, "session_epoch": -1, "replica_id": -1, "topics": [named], **more}


RECORDS: Final = (
    Probe("Produce", 9, produce(), (topic(WRITE),), f"[{TOPIC} [0]]", f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]"),
    Probe(
        "Produce",
        9,
        produce(records=records(NO_PRODUCER["producer_id"], transactional=True), transactional_id=TXN),
        (txn(WRITE), topic(WRITE)),
        f"[{TOPIC} [0 {NO_MAPPING}]]",
        f"[{TOPIC} [0 {NO_TXN_RIGHT}]]",
        {1: f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]"},
        variant="in a transaction",
    ),
    Probe("Fetch", 12, fetch(), (topic(READ),), f"[{TOPIC} [0]]", f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]"),
    Probe(
        "Fetch",
        13,
        lambda world: fetch(named={"topic_id": world.topic_id}),
        (topic(READ),),
        "[ [0]]",
        f"[ [0 {NO_TOPIC_RIGHT}]]",
    ),
    Probe(
        "Fetch",
        12,
        fetch(replica_id=77),
        (cluster(ACTION),),
        f"[{TOPIC} [0 NOT_LEADER_OR_FOLLOWER]]",
        f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]",
        variant="by a follower",
    ),
    *(
        Probe(
            "ListOffsets",
            version,
            {
                "replica_id": -1,
                "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -2}]}],
            },
            (topic(DESCRIBE),),
            f"[{TOPIC} [0]]",
            f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]",
        )
        for version in (0, 7)
    ),
    Probe(
        "DeleteRecords",
        2,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout_ms": 30_000},
        (topic(DELETE),),
        f"[{TOPIC} [0]]",
        f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]",
    ),
    *(
        Probe(
            "OffsetForLeaderEpoch",
            3,
            {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
            (right,),
            f"[{TOPIC} [0]]",
            f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]",
            variant=variant,
        )
        for right, variant in ((topic(DESCRIBE), ""), (cluster(ACTION), "by a follower"))
    ),
    Probe(
        "DescribeProducers",
        0,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (topic(READ),),
        f"[{TOPIC} [0]]",
        f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]",
    ),
)

ALL_OF_A_TOPIC: Final = "ALTER|ALTER_CONFIGS|CREATE|DELETE|DESCRIBE|DESCRIBE_CONFIGS|READ|WRITE"
ALL_OF_THE_CLUSTER: Final = "ALTER|ALTER_CONFIGS|CLUSTER_ACTION|CREATE|DESCRIBE|DESCRIBE_CONFIGS|IDEMPOTENT_WRITE"
NAMED: Final = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}

TOPICS: Final = (
    Probe("Metadata", 12, NAMED, (topic(DESCRIBE),), f"[{TOPIC} [0]]", f"[{TOPIC} {NO_TOPIC_RIGHT}]"),
    Probe(
        "Metadata",
        12,
        lambda world: {"topics": [{"name": None, "topic_id": world.topic_id}]},
        (topic(DESCRIBE),),
        f"[{TOPIC} [0]]",
        f"[{NO_TOPIC_RIGHT}]",
        variant="by id",
    ),
    Probe("Metadata", 9, {"topics": None}, (topic(DESCRIBE),), f"[{TOPIC} [0]]", OK, variant="of all topics"),
    Probe("Metadata", 0, {"topics": []}, (topic(DESCRIBE),), f"[{TOPIC} [0]]", OK, variant="of all topics"),
    Probe(
        "Metadata",
        10,
        {**NAMED, "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True},
        (topic(DESCRIBE), cluster(DESCRIBE)),
        f"may DESCRIBE [{TOPIC} may DESCRIBE [0]]",
        f"may  [{TOPIC} {NO_TOPIC_RIGHT}]",
        {0: f"may DESCRIBE [{TOPIC} {NO_TOPIC_RIGHT}]", 1: f"may  [{TOPIC} may DESCRIBE [0]]"},
        super_user=f"may {ALL_OF_THE_CLUSTER} [{TOPIC} may {ALL_OF_A_TOPIC} [0]]",
        variant="with operations",
    ),
    Probe(
        "Metadata",
        12,
        {"topics": [{"name": NO_TOPIC}], "allow_auto_topic_creation": True},
        (topic(DESCRIBE, NO_TOPIC),),
        f"[{NO_TOPIC} {NO_TOPIC_RIGHT}]",
        f"[{NO_TOPIC} {NO_TOPIC_RIGHT}]",
        variant="that would create",
        spares_super_user=True,
    ),
    Probe(
        "DescribeTopicPartitions",
        0,
        {"topics": [{"name": TOPIC}], "response_partition_limit": 10},
        (topic(DESCRIBE),),
        f"[{TOPIC} may DESCRIBE [0]]",
        f"[{TOPIC} {NO_TOPIC_RIGHT}]",
        super_user=f"[{TOPIC} may {ALL_OF_A_TOPIC} [0]]",
        modes=("kraft",),
    ),
    Probe(
        "DescribeTopicPartitions",
        0,
        {"topics": [], "response_partition_limit": 2_000},
        (topic(DESCRIBE),),
        f"[{TOPIC} may DESCRIBE [0]]",
        OK,
        super_user=f"[{TOPIC} may {ALL_OF_A_TOPIC} [0]]",
        variant="of all topics",
        modes=("kraft",),
    ),
    *(
        Probe(
            "CreateTopics",
            7,
            {
                "topics": [{"name": NO_TOPIC, "num_partitions": 1, "replication_factor": 1}],
                "timeout_ms": 30_000,
                "validate_only": True,
            },
            (right,),
            f"[{NO_TOPIC} configs {NO_TOPIC_RIGHT}]",
            f"[{NO_TOPIC} {NO_TOPIC_RIGHT} configs {NO_TOPIC_RIGHT}]",
            super_user=f"[{NO_TOPIC}]",
            variant=variant,
        )
        for right, variant in ((topic(CREATE, NO_TOPIC), ""), (cluster(CREATE), "by a right to the cluster"))
    ),
    Probe(
        "CreateTopics",
        7,
        {
            "topics": [{"name": NO_TOPIC, "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 30_000,
            "validate_only": True,
        },
        (topic(CREATE, NO_TOPIC), topic(SEE, NO_TOPIC)),
        f"[{NO_TOPIC}]",
        f"[{NO_TOPIC} {NO_TOPIC_RIGHT} configs {NO_TOPIC_RIGHT}]",
        {0: f"[{NO_TOPIC} {NO_TOPIC_RIGHT}]", 1: f"[{NO_TOPIC} configs {NO_TOPIC_RIGHT}]"},
        variant="with configs",
    ),
    Probe(
        "DeleteTopics",
        6,
        {"topics": [{"name": NO_TOPIC}], "timeout_ms": 30_000},
        (topic(DELETE, NO_TOPIC),),
        f"[{NO_TOPIC} {NO_PARTITION}]",
        f"[{NO_TOPIC} {NO_TOPIC_RIGHT}]",
    ),
    Probe(
        "DeleteTopics",
        6,
        lambda world: {"topics": [{"name": None, "topic_id": world.topic_id}], "timeout_ms": 30_000},
        (topic(DESCRIBE),),
        f"[{TOPIC} {NO_TOPIC_RIGHT}]",
        f"[{NO_TOPIC_RIGHT}]",
        variant="by id, to who may see it",
        spares_super_user=True,
    ),
    Probe(
        "CreatePartitions",
        3,
        {"topics": [{"name": TOPIC, "count": 1, "assignments": None}], "timeout_ms": 30_000},
        (topic(ALTER),),
        f"[{TOPIC} INVALID_PARTITIONS]",
        f"[{TOPIC} {NO_TOPIC_RIGHT}]",
    ),
    Probe(
        "AlterPartitionReassignments",
        0,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}]},
        (cluster(ALTER),),
        f"[{TOPIC} [0 NO_REASSIGNMENT_IN_PROGRESS]]",
        f"{NO_CLUSTER_RIGHT} [{TOPIC} [0 {NO_CLUSTER_RIGHT}]]",
    ),
    Probe(
        "ListPartitionReassignments",
        0,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        (cluster(DESCRIBE),),
        OK,
        f"{NO_CLUSTER_RIGHT} [{TOPIC} [0]]",
    ),
    Probe(
        "ElectLeaders",
        2,
        {"election_type": 0, "topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 30_000},
        (cluster(ALTER),),
        f"[{TOPIC} [0 ELECTION_NOT_NEEDED]]",
        f"{NO_CLUSTER_RIGHT} [{TOPIC} [0 {NO_CLUSTER_RIGHT}]]",
    ),
)

OFFSET: Final = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
COMMITTED: Final = [{"name": TOPIC, "partitions": [OFFSET]}]
MEMBER: Final = {"group_id": GROUP, "member_id": "nobody"}

GROUPS: Final = (
    Probe(
        "FindCoordinator",
        4,
        {"key_type": 0, "coordinator_keys": [GROUP]},
        (group(DESCRIBE),),
        f"[{GROUP}]",
        f"[{GROUP} {NO_GROUP_RIGHT}]",
        variant="of a group",
    ),
    Probe(
        "FindCoordinator",
        3,
        {"key_type": 0, "key": GROUP},
        (group(DESCRIBE),),
        OK,
        NO_GROUP_RIGHT,
        variant="of a group",
    ),
    Probe(
        "JoinGroup",
        7,
        {
            **MEMBER,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        (group(READ),),
        "UNKNOWN_MEMBER_ID",
        NO_GROUP_RIGHT,
    ),
    Probe("SyncGroup", 4, {**MEMBER, "generation_id": 1}, (group(READ),), "UNKNOWN_MEMBER_ID", NO_GROUP_RIGHT),
    Probe("Heartbeat", 4, {**MEMBER, "generation_id": 1}, (group(READ),), "UNKNOWN_MEMBER_ID", NO_GROUP_RIGHT),
    Probe("LeaveGroup", 1, MEMBER, (group(READ),), "UNKNOWN_MEMBER_ID", NO_GROUP_RIGHT),
    Probe(
        "OffsetCommit",
        8,
        {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": COMMITTED},
        (group(READ), topic(READ)),
        f"[{TOPIC} [0]]",
        f"[{TOPIC} [0 {NO_GROUP_RIGHT}]]",
        {1: f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]"},
    ),
    Probe(
        "OffsetFetch",
        8,
        {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
        (group(DESCRIBE), topic(DESCRIBE)),
        f"[{GROUP} [{TOPIC} [0]]]",
        f"[{GROUP} {NO_GROUP_RIGHT}]",
        {1: f"[{GROUP} [{TOPIC} [0 {NO_TOPIC_RIGHT}]]]"},
    ),
    Probe(
        "OffsetFetch",
        8,
        {"groups": [{"group_id": GROUP, "topics": None}]},
        (group(DESCRIBE), topic(DESCRIBE)),
        f"[{GROUP} [{TOPIC} [0]]]",
        f"[{GROUP} {NO_GROUP_RIGHT}]",
        {1: f"[{GROUP}]"},
        variant="of everything",
    ),
    Probe(
        "OffsetDelete",
        0,
        {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 9}]}]},
        (group(DELETE), topic(READ)),
        f"[{TOPIC} [9 {NO_PARTITION}]]",
        NO_GROUP_RIGHT,
        {1: f"[{TOPIC} [9 {NO_TOPIC_RIGHT}]]"},
    ),
    Probe(
        "DescribeGroups",
        5,
        {"groups": [GROUP], "include_authorized_operations": True},
        (group(DESCRIBE),),
        f"[{GROUP} may DESCRIBE]",
        f"[{GROUP} {NO_GROUP_RIGHT}]",
        super_user=f"[{GROUP} may DELETE|DESCRIBE|READ]",
    ),
    Probe("ListGroups", 4, {}, (group(DESCRIBE),), f"[{GROUP}]", OK),
    Probe("ListGroups", 4, {}, (cluster(DESCRIBE),), f"[{GROUP}]", OK, variant="by a right to the cluster"),
    Probe(
        "DeleteGroups",
        2,
        {"groups_names": [NO_GROUP]},
        (group(DELETE, NO_GROUP),),
        f"[{NO_GROUP} GROUP_ID_NOT_FOUND]",
        f"[{NO_GROUP} {NO_GROUP_RIGHT}]",
    ),
    Probe(
        "ConsumerGroupHeartbeat",
        0,
        {"group_id": NO_GROUP, "member_id": "nobody", "member_epoch": 5},
        (group(READ, NO_GROUP),),
        "GROUP_ID_NOT_FOUND",
        NO_GROUP_RIGHT,
        modes=("kraft",),
    ),
    Probe(
        "ConsumerGroupDescribe",
        0,
        {"group_ids": [NO_GROUP], "include_authorized_operations": True},
        (group(DESCRIBE, NO_GROUP),),
        f"[{NO_GROUP} GROUP_ID_NOT_FOUND]",
        f"[{NO_GROUP} {NO_GROUP_RIGHT}]",
        modes=("kraft",),
    ),
)

TXN_TOPIC: Final = {"name": TOPIC, "partitions": [0]}

TRANSACTIONS: Final = (
    Probe(
        "FindCoordinator",
        4,
        {"key_type": 1, "coordinator_keys": [TXN]},
        (txn(DESCRIBE),),
        f"[{TXN}]",
        f"[{TXN} {NO_TXN_RIGHT}]",
        variant="of a transactional id",
    ),
    Probe(
        "InitProducerId",
        4,
        {"transactional_id": TXN, "transaction_timeout_ms": 60_000},
        (txn(WRITE),),
        OK,
        NO_TXN_RIGHT,
    ),
    *(
        Probe(
            "InitProducerId",
            4,
            {"transactional_id": None, "transaction_timeout_ms": 60_000},
            (right,),
            OK,
            NO_CLUSTER_RIGHT,
            variant=variant,
        )
        for right, variant in (
            (cluster(AclOperation.IDEMPOTENT_WRITE), "without transactions"),
            (topic(WRITE), "by a right to some topic"),
        )
    ),
    Probe(
        "AddPartitionsToTxn",
        3,
        {
            "v3_and_below_transactional_id": TXN,
            "v3_and_below_producer_id": NO_PRODUCER["producer_id"],
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [TXN_TOPIC],
        },
        (txn(WRITE), topic(WRITE)),
        f"[{TOPIC} [0 {NO_MAPPING}]]",
        f"[{TOPIC} [0 {NO_TXN_RIGHT}]]",
        {1: f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]"},
    ),
    Probe(
        "AddPartitionsToTxn",
        4,
        {"transactions": [{"transactional_id": TXN, **NO_PRODUCER, "verify_only": True, "topics": [TXN_TOPIC]}]},
        (cluster(ACTION),),
        f"[{TXN} [{TOPIC} [0 {NO_MAPPING}]]]",
        NO_CLUSTER_RIGHT,
        variant="by a broker",
    ),
    Probe(
        "AddOffsetsToTxn",
        3,
        {"transactional_id": TXN, **NO_PRODUCER, "group_id": GROUP},
        (txn(WRITE), group(READ)),
        NO_MAPPING,
        NO_TXN_RIGHT,
        {1: NO_GROUP_RIGHT},
    ),
    Probe("EndTxn", 3, {"transactional_id": TXN, **NO_PRODUCER}, (txn(WRITE),), NO_MAPPING, NO_TXN_RIGHT),
    Probe(
        "TxnOffsetCommit",
        3,
        {"transactional_id": TXN, "group_id": GROUP, **NO_PRODUCER, "topics": COMMITTED},
        (txn(WRITE), group(READ), topic(READ)),
        f"[{TOPIC} [0 {NO_MAPPING}]]",
        f"[{TOPIC} [0 {NO_TXN_RIGHT}]]",
        {1: f"[{TOPIC} [0 {NO_GROUP_RIGHT}]]", 2: f"[{TOPIC} [0 {NO_TOPIC_RIGHT}]]"},
    ),
    *(
        Probe(
            "WriteTxnMarkers",
            1,
            {
                "markers": [
                    {**NO_PRODUCER, "coordinator_epoch": 0, "topics": [{"name": TOPIC, "partition_indexes": [9]}]}
                ]
            },
            (right,),
            f"[[{TOPIC} [9 {NO_PARTITION}]]]",
            f"[[{TOPIC} [9 {NO_CLUSTER_RIGHT}]]]",
            variant=variant,
        )
        for right, variant in ((cluster(ACTION), "by a broker"), (cluster(ALTER), "by an administrator"))
    ),
    Probe(
        "DescribeTransactions",
        0,
        {"transactional_ids": [TXN]},
        (txn(DESCRIBE),),
        f"[{TXN}]",
        f"[{TXN} {NO_TXN_RIGHT}]",
    ),
    Probe("ListTransactions", 0, {}, (txn(DESCRIBE),), f"[{TXN}]", OK),
)


def resource(kind: int, name: str, config: dict[str, str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **({"configs": [config]} if config else {})}


A_TOPIC, A_BROKER, A_LOGGER, A_CLIENTS_METRICS, A_GROUP = 2, 4, 8, 16, 32
CONFIG: Final = {"name": "retention.ms", "value": "604800000"}
BROKER_CONFIG: Final = {"name": "log.cleaner.threads", "value": "1"}

CONFIGS: Final = (
    *(
        Probe(
            "DescribeConfigs", 4, {"resources": [{**resource(kind, name), "configuration_keys": None}]}, (right,),
            f"[{name}]", f"[{name} {refusal}]", variant=variant,
        )
        for kind, name, right, refusal, variant in (
            (A_TOPIC, TOPIC, topic(SEE), NO_TOPIC_RIGHT, "of a topic"),
            (A_BROKER, "1", cluster(SEE), NO_CLUSTER_RIGHT, "of a broker"),
            (A_LOGGER, "1", cluster(SEE), NO_CLUSTER_RIGHT, "of loggers"),
        )
    ),
    Probe(
        "DescribeConfigs", 4, {"resources": [{**resource(A_TOPIC, TOPIC), "configuration_keys": None}]},
        (topic(SET),), f"[{TOPIC}]", f"[{TOPIC} {NO_TOPIC_RIGHT}]",
        # A right allows what it implies even where it is denied itself.
        {0: f"[{TOPIC}]"}, variant="of a topic, to who may change them",
    ),
    Probe(
        "DescribeConfigs", 4, {"resources": [{**resource(A_GROUP, GROUP), "configuration_keys": None}]},
        (group(SEE),), f"[{GROUP}]", f"[{GROUP} {NO_GROUP_RIGHT}]", variant="of a group", modes=(),
    ),
    *(
        Probe(
            api, 1, {"resources": [resource(kind, name, config)], "validate_only": True}, (right,),
            f"[{name}]", f"[{name} {refusal}]", variant=variant,
        )
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
        for kind, name, config, right, refusal, variant in (
            (A_TOPIC, TOPIC, CONFIG, topic(SET), NO_TOPIC_RIGHT, "of a topic"),
            (A_BROKER, "1", BROKER_CONFIG, cluster(SET), NO_CLUSTER_RIGHT, "of a broker"),
        )
    ),
    Probe(
        "IncrementalAlterConfigs", 1,
        {"resources": [resource(A_LOGGER, "1", {"name": "root", "value": "INFO"})], "validate_only": True},
        (cluster(SET),), "[1]", f"[1 {NO_CLUSTER_RIGHT}]", variant="of loggers",
    ),
    Probe("ListClientMetricsResources", 0, {}, (cluster(SEE),), OK, NO_CLUSTER_RIGHT, modes=("kraft",)),
)  # fmt: skip

CLUSTER: Final = (
    Probe(
        "DescribeCluster",
        1,
        {"include_cluster_authorized_operations": True},
        (cluster(DESCRIBE),),
        "may DESCRIBE",
        "may ",
        super_user=f"may {ALL_OF_THE_CLUSTER}",
    ),
    Probe(
        "DescribeLogDirs",
        4,
        {"topics": [{"topic": TOPIC, "partitions": [0]}]},
        (cluster(DESCRIBE),),
        f"[[{TOPIC} [0]]]",
        NO_CLUSTER_RIGHT,
    ),
    Probe(
        "AlterReplicaLogDirs",
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        (cluster(ALTER),),
        f"[{TOPIC} [0 LOG_DIR_NOT_FOUND]]",
        f"[{TOPIC} [0 {NO_CLUSTER_RIGHT}]]",
    ),
    Probe(
        "DescribeUserScramCredentials",
        0,
        {"users": [{"name": "nobody"}]},
        (cluster(DESCRIBE),),
        "[nobody RESOURCE_NOT_FOUND]",
        # Kafka leaves the name away.
        f"{NO_CLUSTER_RIGHT} [ {NO_CLUSTER_RIGHT}]",
    ),
    Probe(
        "AlterUserScramCredentials",
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}]},
        (cluster(ALTER),),
        "[nobody RESOURCE_NOT_FOUND]",
        f"[nobody {NO_CLUSTER_RIGHT}]",
    ),
)


def user(name: str, operation: AclOperation) -> tuple[Right, ...]:
    return (Right(AclResourceType.USER, f"User:{name}", operation),)


def the_token(world: World) -> tuple[Right, ...]:
    return (Right(AclResourceType.DELEGATION_TOKEN, world.token_id, DESCRIBE),)


OWNERS: Final = {"owners": [{"principal_type": "User", "principal_name": OWNER}]}

TOKENS: Final = (
    Probe(
        "CreateDelegationToken",
        3,
        {"owner_principal_type": "User", "owner_principal_name": NEXT_OWNER, "renewers": [], "max_lifetime_ms": 1},
        user(NEXT_OWNER, AclOperation.CREATE_TOKENS),
        NEXT_OWNER,
        f"{NEXT_OWNER} DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        anonymous=f"{NEXT_OWNER} {NO_TOKENS}",
    ),
    Probe(
        "DescribeDelegationToken",
        3,
        OWNERS,
        user(OWNER, AclOperation.DESCRIBE_TOKENS),
        f"[{OWNER}]",
        OK,
        anonymous=NO_TOKENS,
        variant="of a user",
    ),
    Probe("DescribeDelegationToken", 3, OWNERS, the_token, f"[{OWNER}]", OK, anonymous=NO_TOKENS, variant="the token"),
    *(
        Probe(
            api,
            2,
            lambda world: {"hmac": world.hmac},
            (cluster(ALTER),),
            "DELEGATION_TOKEN_OWNER_MISMATCH",
            "DELEGATION_TOKEN_OWNER_MISMATCH",
            anonymous=NO_TOKENS,
            variant="of another",
            spares_super_user=True,
        )
        for api in ("RenewDelegationToken", "ExpireDelegationToken")
    ),
)

NOTHING: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
# Of a cluster by another name than the only one.
NO_RULE: Final = {
    "resource_type": 4,
    "resource_name": "another",
    "resource_pattern_type": 3,
    "principal": "User:bob",
    "host": "*",
    "operation": 8,
    "permission_type": 3,
}
QUOTA: Final = {
    "entity": [{"entity_type": "user", "entity_name": "bob"}],
    "ops": [{"key": "producer_byte_rate", "value": 1024.0, "remove": False}],
}

RULES_AND_QUOTAS: Final = (
    Probe("DescribeAcls", 2, NOTHING, (cluster(DESCRIBE),), OK, NO_CLUSTER_RIGHT),
    Probe("CreateAcls", 2, {"creations": [NO_RULE]}, (cluster(ALTER),), "[INVALID_REQUEST]", f"[{NO_CLUSTER_RIGHT}]"),
    Probe("DeleteAcls", 2, {"filters": [NOTHING]}, (cluster(ALTER),), OK, f"[{NO_CLUSTER_RIGHT}]"),
    Probe("DescribeClientQuotas", 1, {"components": [], "strict": False}, (cluster(SEE),), OK, NO_CLUSTER_RIGHT),
    Probe(
        "AlterClientQuotas",
        1,
        {"entries": [QUOTA], "validate_only": True},
        (cluster(SET),),
        OK,
        f"[{NO_CLUSTER_RIGHT}]",
    ),
    # A feature that no broker knows.
    Probe(
        "UpdateFeatures",
        1,
        {"feature_updates": [{"feature": "no.such", "max_version_level": 1, "upgrade_type": 1}], "validate_only": True},
        (cluster(ALTER),),
        "[INVALID_UPDATE_VERSION]",
        NO_CLUSTER_RIGHT,
    ),
)

# Between brokers. None is obeyed: the controller, or the broker, that asks is not there.
STALE: Final = {"controller_id": 1, "controller_epoch": 0, "broker_epoch": -1}

INTER_BROKER: Final = (
    Probe("LeaderAndIsr", 5, STALE, (cluster(ACTION),), "STALE_CONTROLLER_EPOCH", NO_CLUSTER_RIGHT),
    Probe("StopReplica", 3, STALE, (cluster(ACTION),), "STALE_CONTROLLER_EPOCH", NO_CLUSTER_RIGHT),
    Probe("UpdateMetadata", 7, STALE, (cluster(ACTION),), "STALE_CONTROLLER_EPOCH", NO_CLUSTER_RIGHT),
    *(
        Probe(api, version, {"broker_id": 1, "broker_epoch": 0}, (cluster(ACTION),), "STALE_BROKER_EPOCH",
              NO_CLUSTER_RIGHT)
        for api, version in (("ControlledShutdown", 3), ("AlterPartition", 2), ("AllocateProducerIds", 0))
    ),
)  # fmt: skip

PROBES: Final = (*RECORDS, *TOPICS, *GROUPS, *TRANSACTIONS, *CONFIGS, *CLUSTER, *TOKENS, *RULES_AND_QUOTAS)
