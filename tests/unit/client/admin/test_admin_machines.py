"""Brokers, features, directories, moves and elections as answers tell of them."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.admin import cluster_description, features, log_dirs, reassignments
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_description import BrokerDescription, ClusterCalls
from braidlog.client.admin.features import FeatureCalls, FeatureUpdate, Levels, UpgradeType
from braidlog.client.admin.log_dirs import LogDirCalls, Replica, ReplicaInfo
from braidlog.client.admin.reassignments import ElectionType, Reassignment, ReassignmentCalls
from braidlog.client.requests.metadata import METADATA
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    ClusterAuthorizationFailedError,
    InvalidUpdateVersionError,
    KafkaStorageError,
    NoReassignmentInProgressError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.apis import API_VERSIONS
from braidlog.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from braidlog.wire.generated.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from braidlog.wire.generated.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from braidlog.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from braidlog.wire.generated.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from braidlog.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from braidlog.wire.generated.metadata import MetadataResponse, MetadataResponseBroker
from braidlog.wire.generated.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from support.admin_fakes import ScriptedCluster, ScriptedNode

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def asking(answers: dict[int, Any], versions: dict[int, int] | None = None) -> tuple[AdminApiDriver, ScriptedNode]:
    node = ScriptedNode({key: _always(answer) for key, answer in answers.items()}, versions)
    return AdminApiDriver(ScriptedCluster({1: node})), node


def _always(answer: Any) -> Any:
    return lambda request: answer


# The cluster


def test_the_cluster_and_its_brokers() -> None:
    answer = DescribeClusterResponse(
        cluster_id="c",
        controller_id=-1,
        brokers=[
            DescribeClusterBroker(broker_id=2, host="b", port=2, rack="r"),
            DescribeClusterBroker(broker_id=1, host="a", port=1),
        ],
    )
    driver, _ = asking({cluster_description.DESCRIBE_CLUSTER: answer})
    found = ClusterCalls(driver).describe_cluster()
    assert (found.cluster_id, found.controller_id, found.authorized_operations) == ("c", None, None)
    assert found.brokers == (BrokerDescription(1, "a", 1, None), BrokerDescription(2, "b", 2, "r"))
    older, _ = asking({cluster_description.DESCRIBE_CLUSTER: answer}, {cluster_description.DESCRIBE_CLUSTER: 1})
    with pytest.raises(UserError, match="too old to tell"):
        ClusterCalls(older).describe_cluster(fenced_brokers=True)


def test_a_broker_from_before_the_call_is_asked_for_metadata() -> None:
    brokers = [MetadataResponseBroker(node_id=1, host="a", port=1)]
    driver, _ = asking({METADATA: MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1)})
    found = ClusterCalls(driver).describe_cluster()
    assert (found.cluster_id, found.controller_id) == ("c", 1)
    assert found.brokers == (BrokerDescription(1, "a", 1, None),)


def test_apis_by_name_and_those_without_one() -> None:
    answer = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=9999, min_version=0, max_version=1),
            ApiVersion(api_key=3, min_version=0, max_version=12),
        ]
    )
    driver, _ = asking({API_VERSIONS: answer})
    assert ClusterCalls(driver).broker_api_versions()[1] == ((3, "Metadata", 0, 12), (9999, "", 0, 1))


# Features


def test_features_that_are_used_and_could_be() -> None:
    answer = ApiVersionsResponse(
        supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=3)],
        finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
        finalized_features_epoch=7,
    )
    driver, _ = asking({API_VERSIONS: answer})
    found = FeatureCalls(driver).describe_features()
    assert (found.finalized, found.supported, found.epoch) == ({"f": Levels(1, 2)}, {"f": Levels(0, 3)}, 7)
    bare, _ = asking({API_VERSIONS: ApiVersionsResponse()})
    assert FeatureCalls(bare).describe_features().epoch is None


@pytest.mark.parametrize(("version", "expected"), [(0, (True, 1)), (1, (False, 3)), (2, (False, 3))])
def test_levels_are_changed_in_every_version(version: int, expected: tuple[bool, int]) -> None:
    # From version 2 on it is all or none, and nothing is said of each.
    results = [UpdatableFeatureResult(feature="f"), UpdatableFeatureResult(feature="g", error_code=95)]
    answer = UpdateFeaturesResponse(results=results if version < 2 else [])
    driver, node = asking({features.UPDATE_FEATURES: answer}, {features.UPDATE_FEATURES: version})
    changed = FeatureCalls(driver).update_features({"f": FeatureUpdate(0, UpgradeType.UNSAFE_DOWNGRADE), "g": 2})
    assert changed["f"] is None
    if version < 2:
        assert isinstance(changed.errors["g"], InvalidUpdateVersionError)
    first, second = node.asked[0].feature_updates
    assert (first.allow_downgrade, first.upgrade_type) == expected
    assert (second.max_version_level, second.allow_downgrade) == (2, False)


# Directories


def test_directories_that_work_and_one_that_does_not() -> None:
    partition = DescribeLogDirsPartition(partition_index=0, partition_size=10, offset_lag=3, is_future_key=True)
    works = DescribeLogDirsResult(
        log_dir="/b",
        topics=[DescribeLogDirsTopic(name="orders", partitions=[partition])],
        total_bytes=5,
        usable_bytes=4,
    )
    answer = DescribeLogDirsResponse(results=[works, DescribeLogDirsResult(log_dir="/a", error_code=56)])
    driver, node = asking({log_dirs.DESCRIBE_LOG_DIRS: answer})
    broken, found = LogDirCalls(driver).describe_log_dirs()[1]
    assert isinstance(broken.error, KafkaStorageError)
    assert (broken.total_bytes, broken.usable_bytes) == (None, None)
    assert found.replicas == {FIRST: ReplicaInfo(10, 3, True)}
    assert (found.error, found.total_bytes, found.usable_bytes) == (None, 5, 4)
    assert node.asked[0].topics is None
    LogDirCalls(driver).describe_log_dirs([1], partitions=[FIRST, SECOND])
    assert [(each.topic, each.partitions) for each in node.asked[1].topics] == [("orders", [0, 1])]


def test_copies_are_moved_by_their_brokers() -> None:
    def alter(request: Any) -> AlterReplicaLogDirsResponse:
        partitions = [
            AlterReplicaLogDirPartitionResult(partition_index=number)
            for directory in request.dirs
            for topic in directory.topics
            for number in topic.partitions
        ]
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(topic_name="orders", partitions=partitions)]
        )

    nodes = {number: ScriptedNode({log_dirs.ALTER_REPLICA_LOG_DIRS: alter}) for number in (1, 2)}
    targets = {Replica("orders", 0, 1): "/a", Replica("orders", 1, 1): "/b", Replica("orders", 0, 2): "/c"}
    moved = LogDirCalls(AdminApiDriver(ScriptedCluster(nodes))).alter_replica_log_dirs(targets)
    assert moved == dict.fromkeys(targets)
    assert [each.path for each in nodes[1].asked[0].dirs] == ["/a", "/b"]
    assert [each.path for each in nodes[2].asked[0].dirs] == ["/c"]
    assert str(Replica("orders", 0, 2)) == "orders-0 on broker 2"


# Moves and elections


def test_moves_begin_end_and_are_seen() -> None:
    partitions = [
        ReassignablePartitionResponse(partition_index=0),
        ReassignablePartitionResponse(partition_index=1, error_code=85),
    ]
    altered = AlterPartitionReassignmentsResponse(
        responses=[ReassignableTopicResponse(name="orders", partitions=partitions)]
    )
    ongoing = OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
    )
    listed = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="orders", partitions=[ongoing])])
    driver, node = asking(
        {
            reassignments.ALTER_PARTITION_REASSIGNMENTS: altered,
            reassignments.LIST_PARTITION_REASSIGNMENTS: listed,
        }
    )
    calls = ReassignmentCalls(driver)
    results = calls.alter_partition_reassignments({FIRST: [2], SECOND: None})
    assert results[FIRST] is None
    assert isinstance(results.errors[SECOND], NoReassignmentInProgressError)
    assert "nothing to cancel" in str(results.errors[SECOND])
    (topic,) = node.asked[0].topics
    assert [(each.partition_index, each.replicas) for each in topic.partitions] == [(0, [2]), (1, None)]
    assert calls.list_partition_reassignments() == {FIRST: Reassignment((1, 2), (2,), (1,))}
    assert node.asked[1].topics is None
    driver, _ = asking(
        {reassignments.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsResponse(error_code=31)}
    )
    with pytest.raises(ClusterAuthorizationFailedError):
        ReassignmentCalls(driver).alter_partition_reassignments({FIRST: [2]})


def test_elections_of_some_or_of_all() -> None:
    result = ReplicaElectionResult(topic="orders", partition_result=[PartitionResult(partition_id=0)])
    driver, node = asking({reassignments.ELECT_LEADERS: ElectLeadersResponse(replica_election_results=[result])})
    calls = ReassignmentCalls(driver)
    assert calls.elect_leaders([FIRST], ElectionType.UNCLEAN) == {FIRST: None}
    assert calls.elect_leaders() == {FIRST: None}
    assert [request.election_type for request in node.asked] == [1, 0]
    assert node.asked[1].topic_partitions is None
