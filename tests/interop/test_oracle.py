"""The same requests to Apache Kafka 3.9 and to us: topics, metadata and the cluster, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from braidlog.wire.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.describe_cluster import DescribeClusterRequest
from braidlog.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from braidlog.wire.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from braidlog.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_client_metrics_resources import ListClientMetricsResourcesRequest
from braidlog.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.wire.message import Message
from support.eventually import eventually
from support.oracle import Pair, Side
from support.raw import RawConnection, versions_of

pytestmark = pytest.mark.peer

# Spoken by brokers of a cluster among themselves, by KRaft nodes alone, or part of what is not built yet
# (security, quotas, telemetry): docs/STATUS.md says which.
NOT_HERE_YET = {
    *range(4, 8), 17, *range(29, 32), 36, *range(38, 42), *range(48, 60), *range(62, 65), 67, *range(70, 74),
    *range(76, 90),
}  # fmt: skip


COORDINATOR_LOAD_IN_PROGRESS = 14


def test_api_versions_cover_those_of_kafka(pair: Pair) -> None:
    answers: list[Any] = [
        side.ask("ApiVersions", 4, ApiVersionsRequest(client_software_name="raw", client_software_version="1"))
        for side in pair.sides
    ]
    theirs, ours = ({a.api_key: (a.min_version, a.max_version) for a in answer.api_keys} for answer in answers)
    for key, (lowest, highest) in theirs.items():
        if key not in NOT_HERE_YET:
            assert key in ours, f"api key {key} is missing"
            assert ours[key][0] == lowest, f"api key {key}"
            assert ours[key][1] >= highest, f"api key {key}"


@pytest.mark.parametrize("version", versions_of("ApiVersions"))
def test_api_versions_in_every_version(pair: Pair, version: int) -> None:
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    codes = [getattr(side.ask("ApiVersions", version, request), "error_code") for side in pair.sides]  # noqa: B009
    assert codes == [0, 0]


def test_a_version_of_api_versions_from_the_future(pair: Pair) -> None:
    """Answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions itself."""
    answers = []
    for side in pair.sides:
        with RawConnection(side.broker.port) as connection:
            connection.send_frame(b"\x00\x12\x00\x63\x00\x00\x00\x07\xff\xff\x00\x00")
            answers.append(connection.receive_frame())
    assert answers[0] is not None
    assert answers[1] == answers[0]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"\x00\x03\x00\x63\x00\x00\x00\x07\xff\xff\x00", "Metadata v99"),
        (b"\x03\xe7\x00\x00\x00\x00\x00\x07\xff\xff", "an unknown api key"),
        (b"\x00", "half a header"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff\x7f\xff\xff\xff", "an array longer than the frame"),
    ],
)
def test_frames_that_cannot_be_answered_close_the_connection(pair: Pair, body: bytes, what: str) -> None:
    for side in pair.sides:
        with RawConnection(side.broker.port) as connection:
            connection.send_frame(body)
            assert connection.receive_frame() is None, what


def test_subscriptions_to_metrics_of_clients(pair: Pair) -> None:
    pair.compare("ListClientMetricsResources", 0, ListClientMetricsResourcesRequest())


@pytest.mark.parametrize("version", versions_of("Metadata"))
def test_metadata(pair: Pair, version: int) -> None:
    name = f"metadata-{version}"
    pair.create(name, partitions=3)
    carries_flags = version >= 8

    def wanted(*topics: MetadataRequestTopic, auto: bool = False) -> MetadataRequest:
        request = MetadataRequest(topics=list(topics))
        if version >= 4:
            request.allow_auto_topic_creation = auto
        if carries_flags:
            request.include_topic_authorized_operations = True
        return request

    def named(text: str) -> MetadataRequestTopic:
        return MetadataRequestTopic(name=text)

    pair.compare("Metadata", version, wanted(named(name)))
    if version >= 4:
        pair.compare("Metadata", version, wanted(named(name), named("no-such-topic")))
        pair.compare("Metadata", version, wanted(named("not a name")))
    if version >= 1:
        pair.compare("Metadata", version, MetadataRequest(topics=[]))
    if version >= 12:
        by_id = pair.compare(
            "Metadata", version, lambda side: wanted(MetadataRequestTopic(topic_id=side.topic_ids[name], name=None))
        )
        assert by_id["topics"][0]["name"] == name
        pair.compare("Metadata", version, wanted(MetadataRequestTopic(topic_id=b"\x01" * 16, name=None)))


@pytest.mark.parametrize("version", versions_of("CreateTopics"))
def test_create_topics(pair: Pair, version: int) -> None:
    prefix = f"create-{version}"
    pair.create(f"{prefix}-there")

    def topic(name: str, **fields: Any) -> CreatableTopic:
        return CreatableTopic(name=name, **{"num_partitions": 1, "replication_factor": 1, **fields})

    assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    wrong = [CreatableReplicaAssignment(partition_index=0, broker_ids=[77])]
    gap = [CreatableReplicaAssignment(partition_index=1, broker_ids=[1])]
    free = {"num_partitions": -1, "replication_factor": -1}
    topics = [
        topic(f"{prefix}-ok", num_partitions=3),
        topic(f"{prefix}-there"),
        topic("not a name"),
        topic("x" * 250),
        topic(".."),
        topic(f"{prefix}-zero", num_partitions=0),
        topic(f"{prefix}-negative", num_partitions=-5),
        topic(f"{prefix}-copies", replication_factor=3),
        topic(f"{prefix}-nocopies", replication_factor=0),
        topic(f"{prefix}-config", configs=[CreatableTopicConfig(name="no.such", value="1")]),
        topic(f"{prefix}-value", configs=[CreatableTopicConfig(name="retention.ms", value="soon")]),
        topic(f"{prefix}-null", configs=[CreatableTopicConfig(name="retention.ms", value=None)]),
        topic(f"{prefix}-good", configs=[CreatableTopicConfig(name="retention.ms", value="1234567")]),
        topic(f"{prefix}-assigned", assignments=assignment, **free),
        topic(f"{prefix}-both", assignments=assignment),
        topic(f"{prefix}-nobroker", assignments=wrong, **free),
        topic(f"{prefix}-gap", assignments=gap, **free),
        topic(f"{prefix}-twice"),
        topic(f"{prefix}-twice"),
    ]
    if version >= 4:
        topics.append(topic(f"{prefix}-default", **free))
    pair.compare("CreateTopics", version, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    if 1 <= version < 7:  # from 7 on a dry run answers with an id, which Kafka makes up and we leave out
        check = [topic(f"{prefix}-check"), topic(f"{prefix}-there")]
        pair.compare(
            "CreateTopics",
            version,
            CreateTopicsRequest(topics=check, timeout_ms=30_000, validate_only=True),
        )


@pytest.mark.parametrize("version", versions_of("DeleteTopics"))
def test_delete_topics(pair: Pair, version: int) -> None:
    name = f"delete-{version}"
    pair.create(name)
    if version < 6:
        names = [name, f"{name}-none"]
        pair.compare("DeleteTopics", version, DeleteTopicsRequest(topic_names=names, timeout_ms=30_000))
        return
    pair.create(f"{name}-by-id")

    def wanted(side: Side) -> Message:
        return DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=name),
                DeleteTopicState(name=f"{name}-none"),
                DeleteTopicState(name=None, topic_id=side.topic_ids[f"{name}-by-id"]),
                DeleteTopicState(name=None, topic_id=b"\x02" * 16),
            ],
            timeout_ms=30_000,
        )

    pair.compare("DeleteTopics", version, wanted)


@pytest.mark.parametrize("version", versions_of("CreatePartitions"))
def test_create_partitions(pair: Pair, version: int) -> None:
    name = f"grow-{version}"
    for suffix in "abcdefg":
        pair.create(f"{name}-{suffix}", partitions=2)
    one = CreatePartitionsAssignment(broker_ids=[1])
    nobody = CreatePartitionsAssignment(broker_ids=[9])
    topics = [
        CreatePartitionsTopic(name=f"{name}-a", count=4),
        CreatePartitionsTopic(name=f"{name}-b", count=2),
        CreatePartitionsTopic(name=f"{name}-c", count=1),
        CreatePartitionsTopic(name=f"{name}-d", count=3, assignments=[one]),
        CreatePartitionsTopic(name=f"{name}-e", count=4, assignments=[one]),
        CreatePartitionsTopic(name=f"{name}-f", count=3, assignments=[nobody]),
        CreatePartitionsTopic(name=f"{name}-g", count=0),
        CreatePartitionsTopic(name=f"{name}-none", count=3),
    ]
    pair.compare("CreatePartitions", version, CreatePartitionsRequest(topics=topics, timeout_ms=30_000))


@pytest.mark.parametrize("version", versions_of("DescribeCluster"))
def test_describe_cluster(pair: Pair, version: int) -> None:
    for flag in (False, True):
        pair.compare("DescribeCluster", version, DescribeClusterRequest(include_cluster_authorized_operations=flag))


def test_describe_topic_partitions(pair: Pair) -> None:
    pair.create("pages", partitions=5)
    topics = [TopicRequest(name="pages"), TopicRequest(name="no-pages")]
    for limit, cursor in (
        (2000, None),
        (2, None),
        (2, RequestCursor(topic_name="pages", partition_index=2)),
        (2, RequestCursor(topic_name="pages", partition_index=4)),
    ):
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        pair.compare("DescribeTopicPartitions", 0, request)


@pytest.mark.parametrize("version", versions_of("DescribeLogDirs"))
def test_describe_log_dirs(pair: Pair, version: int) -> None:
    name = f"dirs-{version}"
    pair.create(name, partitions=2)
    topics = [
        DescribableLogDirTopic(topic=name, partitions=[0, 1, 7]),
        DescribableLogDirTopic(topic="no-dirs", partitions=[0]),
    ]

    def made(side: Side) -> bool:
        answer: Any = side.ask("DescribeLogDirs", version, DescribeLogDirsRequest(topics=topics))
        return sum(len(topic.partitions) for topic in answer.results[0].topics) == 2

    for side in pair.sides:
        eventually(lambda side=side: made(side))
    pair.compare("DescribeLogDirs", version, DescribeLogDirsRequest(topics=topics))


@pytest.mark.parametrize("version", versions_of("AlterReplicaLogDirs"))
def test_alter_replica_log_dirs(pair: Pair, version: int) -> None:
    name = f"moves-{version}"
    pair.create(name)

    def wanted(side: Side) -> Message:
        topics = [
            AlterReplicaLogDirTopic(name=name, partitions=[0]),
            AlterReplicaLogDirTopic(name="no-moves", partitions=[0]),
        ]
        here = AlterReplicaLogDir(path=str(side.broker.data_dir), topics=topics)
        elsewhere = AlterReplicaLogDir(path="/no/such/dir", topics=[AlterReplicaLogDirTopic(name=name, partitions=[0])])
        return AlterReplicaLogDirsRequest(dirs=[here] if version != 1 else [elsewhere])

    pair.compare("AlterReplicaLogDirs", version, wanted)


@pytest.mark.parametrize("version", versions_of("ElectLeaders"))
@pytest.mark.parametrize("kind", [0, 1])
def test_elect_leaders(pair: Pair, version: int, kind: int) -> None:
    if kind == 1 and version == 0:
        pytest.skip("version 0 knows preferred elections only")
    name = f"elect-{version}-{kind}"
    pair.create(name, partitions=2)
    topics = [
        TopicPartitions(topic=name, partitions=[0, 1, 9]),
        TopicPartitions(topic="no-elect", partitions=[0]),
    ]
    pair.compare(
        "ElectLeaders",
        version,
        ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=30_000),
    )


def test_reassignments(pair: Pair) -> None:
    pair.create("reassign", partitions=5)

    def wanted(side: Side) -> Message:
        partitions = [
            ReassignablePartition(partition_index=0, replicas=[1]),
            ReassignablePartition(partition_index=1, replicas=[9]),
            ReassignablePartition(partition_index=2, replicas=[1, 1]),
            ReassignablePartition(partition_index=3, replicas=[]),
            ReassignablePartition(partition_index=4, replicas=None),
            ReassignablePartition(partition_index=7, replicas=[1]),
        ]
        return AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name="reassign", partitions=partitions),
                ReassignableTopic(
                    name="no-reassign", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
                ),
            ]
        )

    pair.compare("AlterPartitionReassignments", 0, wanted)
    pair.compare("ListPartitionReassignments", 0, ListPartitionReassignmentsRequest(topics=None))
    some = [ListPartitionReassignmentsTopics(name="reassign", partition_indexes=[0, 9])]
    pair.compare("ListPartitionReassignments", 0, ListPartitionReassignmentsRequest(topics=some))


@pytest.mark.parametrize("version", versions_of("InitProducerId"))
def test_init_producer_id(pair: Pair, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    def loaded(side: Side) -> bool:
        answer: Any = side.ask("InitProducerId", version, request)
        return answer.error_code != COORDINATOR_LOAD_IN_PROGRESS

    for side in pair.sides:
        eventually(lambda side=side: loaded(side))
    pair.compare("InitProducerId", version, request)
