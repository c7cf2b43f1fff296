"""Which handler serves which api, and of what it is made.

Each api has a function that makes its handler when its first request comes. What clients rarely ask for is imported
there, too, so that a broker starts without it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.coordinators.coordinators import ImageTopics
from braidlog.broker.handlers.cluster.api_versions import ApiVersionsHandler
from braidlog.broker.handlers.records.list_offsets import ListOffsetsHandler
from braidlog.broker.handlers.topics.metadata import MetadataHandler
from braidlog.broker.quotas.mutation_quotas import MutationQuotas
from braidlog.broker.requests.dispatch import RespondingHandler, ReturningHandler, responding, returning
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.wire.generated.api_keys import ApiKey

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
    from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
    from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest
    from braidlog.wire.generated.alter_client_quotas import AlterClientQuotasRequest
    from braidlog.wire.generated.alter_configs import AlterConfigsRequest
    from braidlog.wire.generated.alter_partition import AlterPartitionRequest
    from braidlog.wire.generated.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from braidlog.wire.generated.alter_replica_log_dirs import AlterReplicaLogDirsRequest
    from braidlog.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from braidlog.wire.generated.api_versions import ApiVersionsRequest
    from braidlog.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
    from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from braidlog.wire.generated.controlled_shutdown import ControlledShutdownRequest
    from braidlog.wire.generated.create_acls import CreateAclsRequest
    from braidlog.wire.generated.create_delegation_token import CreateDelegationTokenRequest
    from braidlog.wire.generated.create_partitions import CreatePartitionsRequest
    from braidlog.wire.generated.create_topics import CreateTopicsRequest
    from braidlog.wire.generated.delete_acls import DeleteAclsRequest
    from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
    from braidlog.wire.generated.delete_records import DeleteRecordsRequest
    from braidlog.wire.generated.delete_topics import DeleteTopicsRequest
    from braidlog.wire.generated.describe_acls import DescribeAclsRequest
    from braidlog.wire.generated.describe_client_quotas import DescribeClientQuotasRequest
    from braidlog.wire.generated.describe_cluster import DescribeClusterRequest
    from braidlog.wire.generated.describe_configs import DescribeConfigsRequest
    from braidlog.wire.generated.describe_delegation_token import DescribeDelegationTokenRequest
    from braidlog.wire.generated.describe_groups import DescribeGroupsRequest
    from braidlog.wire.generated.describe_log_dirs import DescribeLogDirsRequest
    from braidlog.wire.generated.describe_producers import DescribeProducersRequest
    from braidlog.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest
    from braidlog.wire.generated.describe_transactions import DescribeTransactionsRequest
    from braidlog.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
    from braidlog.wire.generated.elect_leaders import ElectLeadersRequest
    from braidlog.wire.generated.end_txn import EndTxnRequest
    from braidlog.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
    from braidlog.wire.generated.fetch import FetchRequest
    from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
    from braidlog.wire.generated.heartbeat import HeartbeatRequest
    from braidlog.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
    from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
    from braidlog.wire.generated.join_group import JoinGroupRequest
    from braidlog.wire.generated.leader_and_isr import LeaderAndIsrRequest
    from braidlog.wire.generated.leave_group import LeaveGroupRequest
    from braidlog.wire.generated.list_client_metrics_resources import ListClientMetricsResourcesRequest
    from braidlog.wire.generated.list_groups import ListGroupsRequest
    from braidlog.wire.generated.list_offsets import ListOffsetsRequest
    from braidlog.wire.generated.list_partition_reassignments import ListPartitionReassignmentsRequest
    from braidlog.wire.generated.list_transactions import ListTransactionsRequest
    from braidlog.wire.generated.metadata import MetadataRequest
    from braidlog.wire.generated.offset_commit import OffsetCommitRequest
    from braidlog.wire.generated.offset_delete import OffsetDeleteRequest
    from braidlog.wire.generated.offset_fetch import OffsetFetchRequest
    from braidlog.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
    from braidlog.wire.generated.produce import ProduceRequest
    from braidlog.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
    from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest
    from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest
    from braidlog.wire.generated.stop_replica import StopReplicaRequest
    from braidlog.wire.generated.sync_group import SyncGroupRequest
    from braidlog.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
    from braidlog.wire.generated.update_features import UpdateFeaturesRequest
    from braidlog.wire.generated.update_metadata import UpdateMetadataRequest
    from braidlog.wire.generated.write_txn_markers import WriteTxnMarkersRequest


def add_routes(broker: Broker) -> None:
    for key, make_returning in RETURNING.items():
        broker.dispatch.add(returning(key, partial(make_returning, broker)))
    for key, make_responding in RESPONDING.items():
        broker.dispatch.add(responding(key, partial(make_responding, broker)))
    if broker.coordination.is_cluster:
        _add_inter_broker_routes(broker)


def _add_inter_broker_routes(broker: Broker) -> None:
    """Nobody but another broker sends these; a broker that is alone does not have them at all."""
    from braidlog.broker.requests.inter_broker_only import ClusterActionOnly, InterBrokerGate, InterBrokerOnly

    settings = broker.settings.current
    add = broker.dispatch.add

    def checked(make: Callable[[Broker], Any], broker: Broker) -> ClusterActionOnly:
        return ClusterActionOnly(make(broker), broker.authorizer)

    if settings.get_bool("braidlog.inter.broker.requests.on.any.listener"):
        for key, make in INTER_BROKER.items():
            add(returning(key, partial(checked, make, broker)))
        return
    gate = InterBrokerGate(broker.inter_broker, broker.environment.clock)

    def gated(make: Callable[[Broker], Any]) -> InterBrokerOnly:
        return InterBrokerOnly(make(broker), gate)

    for key, make in INTER_BROKER.items():
        add(returning(key, partial(gated, partial(checked, make))))
    add(responding(ApiKey.WRITE_TXN_MARKERS, partial(gated, _write_txn_markers)))


# Records


def _produce(broker: Broker) -> RespondingHandler[ProduceRequest]:
    return broker.produce


def _fetch(broker: Broker) -> RespondingHandler[FetchRequest]:
    return broker.fetch


def _list_offsets(broker: Broker) -> ReturningHandler[ListOffsetsRequest]:
    return ListOffsetsHandler(broker.registry, broker.authorizer)


def _offset_for_leader_epoch(broker: Broker) -> ReturningHandler[OffsetForLeaderEpochRequest]:
    from braidlog.broker.handlers.records.log_bounds import OffsetForLeaderEpochHandler

    return OffsetForLeaderEpochHandler(broker.registry, broker.authorizer)


def _delete_records(broker: Broker) -> ReturningHandler[DeleteRecordsRequest]:
    from braidlog.broker.handlers.records.log_bounds import DeleteRecordsHandler

    return DeleteRecordsHandler(broker.registry, broker.authorizer)


# Topics


def _metadata(broker: Broker) -> ReturningHandler[MetadataRequest]:
    auto_create = broker.settings.current.get_bool("auto.create.topics.enable")
    return MetadataHandler(
        broker.metadata_cache,
        broker.registry,
        broker.topic_creation,
        auto_create,
        broker.coordinators.topics.wanted,
        broker.members.announced.wait,
        broker.authorizer,
        MutationQuotas(broker.client_quotas),
    )


def _create_topics(broker: Broker) -> ReturningHandler[CreateTopicsRequest]:
    from braidlog.broker.handlers.topics.topic_changes import CreateTopicsHandler

    return CreateTopicsHandler(
        broker.controller,
        broker.settings,
        broker.authorizer,
        MutationQuotas(broker.client_quotas),
        broker.create_topic_policy,
    )


def _delete_topics(broker: Broker) -> ReturningHandler[DeleteTopicsRequest]:
    from braidlog.broker.handlers.topics.topic_changes import DeleteTopicsHandler

    return DeleteTopicsHandler(
        broker.controller, broker.settings, broker.authorizer, MutationQuotas(broker.client_quotas)
    )


def _create_partitions(broker: Broker) -> ReturningHandler[CreatePartitionsRequest]:
    from braidlog.broker.handlers.topics.topic_changes import CreatePartitionsHandler

    return CreatePartitionsHandler(broker.controller, broker.authorizer, MutationQuotas(broker.client_quotas))


def _describe_topic_partitions(broker: Broker) -> ReturningHandler[DescribeTopicPartitionsRequest]:
    from braidlog.broker.handlers.topics.describe_topic_partitions import DescribeTopicPartitionsHandler

    most = broker.settings.current.get_int("max.request.partition.size.limit")
    return DescribeTopicPartitionsHandler(broker.metadata_cache, broker.registry, most, broker.authorizer)


def _elect_leaders(broker: Broker) -> ReturningHandler[ElectLeadersRequest]:
    from braidlog.broker.handlers.topics.reassignments import ElectLeadersHandler

    return ElectLeadersHandler(broker.controller, broker.authorizer)


def _alter_partition_reassignments(broker: Broker) -> ReturningHandler[AlterPartitionReassignmentsRequest]:
    from braidlog.broker.handlers.topics.reassignments import AlterReassignmentsHandler

    return AlterReassignmentsHandler(broker.controller, broker.authorizer)


def _list_partition_reassignments(broker: Broker) -> ReturningHandler[ListPartitionReassignmentsRequest]:
    from braidlog.broker.handlers.topics.reassignments import ListReassignmentsHandler

    return ListReassignmentsHandler(broker.controller, broker.authorizer)


# The cluster


def _api_versions(broker: Broker) -> ReturningHandler[ApiVersionsRequest]:
    return ApiVersionsHandler(broker.dispatch.routes, broker.finalized_features, broker.serves_consumer_protocol)


def _describe_cluster(broker: Broker) -> ReturningHandler[DescribeClusterRequest]:
    from braidlog.broker.handlers.cluster.describe_cluster import DescribeClusterHandler

    return DescribeClusterHandler(broker.metadata_cache, broker.authorizer)


def _update_features(broker: Broker) -> ReturningHandler[UpdateFeaturesRequest]:
    from braidlog.broker.handlers.cluster.update_features import (
        CoordinatorSurvey,
        FeatureUpdates,
        UpdateFeaturesHandler,
    )

    network = broker.network if broker.coordination.is_cluster else None
    survey = CoordinatorSurvey(broker.broker_id, broker.coordinators, lambda: broker.controller.image, network)
    updates = FeatureUpdates(broker.controller, broker.session, survey, broker.environment.clock)
    return UpdateFeaturesHandler(updates, broker.authorizer)


def _describe_configs(broker: Broker) -> ReturningHandler[DescribeConfigsRequest]:
    from braidlog.broker.handlers.cluster.describe_configs import DescribeConfigsHandler

    return DescribeConfigsHandler(broker.metadata_cache, broker.settings, broker.broker_id, broker.authorizer)


def _alter_configs(broker: Broker) -> ReturningHandler[AlterConfigsRequest]:
    from braidlog.broker.handlers.cluster.alter_configs import AlterConfigsHandler

    return AlterConfigsHandler(
        broker.direct_writes, broker.config_changes, broker.authorizer, broker.alter_config_policy
    )


def _incremental_alter_configs(broker: Broker) -> ReturningHandler[IncrementalAlterConfigsRequest]:
    from braidlog.broker.handlers.cluster.alter_configs import IncrementalAlterConfigsHandler

    return IncrementalAlterConfigsHandler(
        broker.direct_writes, broker.config_changes, broker.broker_id, broker.authorizer, broker.alter_config_policy
    )


def _describe_client_quotas(broker: Broker) -> ReturningHandler[DescribeClientQuotasRequest]:
    from braidlog.broker.handlers.cluster.client_quotas import DescribeClientQuotasHandler

    return DescribeClientQuotasHandler(broker.client_quotas.table, broker.authorizer)


def _alter_client_quotas(broker: Broker) -> ReturningHandler[AlterClientQuotasRequest]:
    from braidlog.broker.handlers.cluster.client_quotas import AlterClientQuotasHandler

    return AlterClientQuotasHandler(
        broker.direct_writes,
        broker.config_changes,
        broker.authorizer,
        lambda: broker.environment.executors.of("name look-ups"),
    )


def _describe_log_dirs(broker: Broker) -> ReturningHandler[DescribeLogDirsRequest]:
    from braidlog.broker.handlers.cluster.log_dirs import DescribeLogDirsHandler

    return DescribeLogDirsHandler(broker.logs, broker.authorizer)


def _alter_replica_log_dirs(broker: Broker) -> ReturningHandler[AlterReplicaLogDirsRequest]:
    from braidlog.broker.handlers.cluster.log_dirs import AlterReplicaLogDirsHandler

    return AlterReplicaLogDirsHandler(broker.logs, broker.moves, broker.authorizer)


def _list_client_metrics_resources(broker: Broker) -> ReturningHandler[ListClientMetricsResourcesRequest]:
    from braidlog.broker.handlers.cluster.describe_cluster import ListClientMetricsResourcesHandler

    return ListClientMetricsResourcesHandler(broker.authorizer)


def _find_coordinator(broker: Broker) -> ReturningHandler[FindCoordinatorRequest]:
    from braidlog.broker.handlers.cluster.find_coordinator import FindCoordinatorHandler

    return FindCoordinatorHandler(broker.metadata_cache, broker.coordinators.topics, broker.authorizer)


# Logins and users


def _sasl_handshake(broker: Broker) -> RespondingHandler[SaslHandshakeRequest]:
    from braidlog.broker.handlers.security.sasl import SaslHandshakeHandler

    return SaslHandshakeHandler()


def _sasl_authenticate(broker: Broker) -> RespondingHandler[SaslAuthenticateRequest]:
    from braidlog.broker.handlers.security.sasl import SaslAuthenticateHandler

    return SaslAuthenticateHandler()


def _describe_user_scram_credentials(broker: Broker) -> ReturningHandler[DescribeUserScramCredentialsRequest]:
    from braidlog.broker.handlers.security.scram_credentials import DescribeUserScramCredentialsHandler

    return DescribeUserScramCredentialsHandler(broker.scram_users, broker.authorizer)


def _alter_user_scram_credentials(broker: Broker) -> ReturningHandler[AlterUserScramCredentialsRequest]:
    from braidlog.broker.handlers.security.scram_credentials import AlterUserScramCredentialsHandler

    return AlterUserScramCredentialsHandler(broker.direct_writes, broker.config_changes, broker.authorizer)


def _create_delegation_token(broker: Broker) -> ReturningHandler[CreateDelegationTokenRequest]:
    from braidlog.broker.handlers.security.delegation_tokens import CreateDelegationTokenHandler

    return CreateDelegationTokenHandler(broker.delegation_tokens, broker.authorizer)


def _renew_delegation_token(broker: Broker) -> ReturningHandler[RenewDelegationTokenRequest]:
    from braidlog.broker.handlers.security.delegation_tokens import RenewDelegationTokenHandler

    return RenewDelegationTokenHandler(broker.delegation_tokens)


def _expire_delegation_token(broker: Broker) -> ReturningHandler[ExpireDelegationTokenRequest]:
    from braidlog.broker.handlers.security.delegation_tokens import ExpireDelegationTokenHandler

    return ExpireDelegationTokenHandler(broker.delegation_tokens)


def _describe_delegation_token(broker: Broker) -> ReturningHandler[DescribeDelegationTokenRequest]:
    from braidlog.broker.handlers.security.delegation_tokens import DescribeDelegationTokenHandler

    return DescribeDelegationTokenHandler(broker.delegation_tokens, broker.authorizer)


def _describe_acls(broker: Broker) -> ReturningHandler[DescribeAclsRequest]:
    from braidlog.broker.handlers.security.acls import DescribeAclsHandler

    return DescribeAclsHandler(broker.acls, broker.authorizer)


def _create_acls(broker: Broker) -> ReturningHandler[CreateAclsRequest]:
    from braidlog.broker.handlers.security.acls import CreateAclsHandler

    return CreateAclsHandler(broker.acls, broker.authorizer)


def _delete_acls(broker: Broker) -> ReturningHandler[DeleteAclsRequest]:
    from braidlog.broker.handlers.security.acls import DeleteAclsHandler

    return DeleteAclsHandler(broker.acls, broker.authorizer)


# Groups


def _offset_commit(broker: Broker) -> RespondingHandler[OffsetCommitRequest]:
    from braidlog.broker.handlers.groups.offset_commit import OffsetCommitHandler

    return OffsetCommitHandler(
        broker.coordinators.groups,
        ImageTopics(broker.metadata_cache),
        LegacyOffsets(broker.session),
        broker.tasks,
        lambda: broker.settings.current.get_int("offset.metadata.max.bytes"),
        broker.authorizer,
    )


def _offset_fetch(broker: Broker) -> RespondingHandler[OffsetFetchRequest]:
    from braidlog.broker.handlers.groups.offset_fetch import OffsetFetchHandler

    return OffsetFetchHandler(
        broker.coordinators.groups,
        ImageTopics(broker.metadata_cache),
        LegacyOffsets(broker.session),
        broker.tasks,
        broker.authorizer,
    )


def _offset_delete(broker: Broker) -> RespondingHandler[OffsetDeleteRequest]:
    from braidlog.broker.handlers.groups.offset_commit import OffsetDeleteHandler

    return OffsetDeleteHandler(broker.coordinators.groups, ImageTopics(broker.metadata_cache), broker.authorizer)


def _txn_offset_commit(broker: Broker) -> RespondingHandler[TxnOffsetCommitRequest]:
    from braidlog.broker.handlers.groups.txn_offset_commit import TxnOffsetCommitHandler

    return TxnOffsetCommitHandler(
        broker.coordinators.groups,
        broker.coordinators.add_partitions_manager,
        ImageTopics(broker.metadata_cache),
        broker.verifies_transactions,
        broker.coordinators.offsets_producers,
        broker.environment.clock,
        broker.authorizer,
    )


def _join_group(broker: Broker) -> RespondingHandler[JoinGroupRequest]:
    from braidlog.broker.handlers.groups.group_membership import JoinGroupHandler

    return JoinGroupHandler(broker.coordinators.groups, broker.authorizer)


def _sync_group(broker: Broker) -> RespondingHandler[SyncGroupRequest]:
    from braidlog.broker.handlers.groups.group_membership import SyncGroupHandler

    return SyncGroupHandler(broker.coordinators.groups, broker.authorizer)


def _heartbeat(broker: Broker) -> RespondingHandler[HeartbeatRequest]:
    from braidlog.broker.handlers.groups.group_membership import HeartbeatHandler

    return HeartbeatHandler(broker.coordinators.groups, broker.authorizer)


def _leave_group(broker: Broker) -> RespondingHandler[LeaveGroupRequest]:
    from braidlog.broker.handlers.groups.group_membership import LeaveGroupHandler

    return LeaveGroupHandler(broker.coordinators.groups, broker.authorizer)


def _consumer_group_heartbeat(broker: Broker) -> RespondingHandler[ConsumerGroupHeartbeatRequest]:
    from braidlog.broker.handlers.groups.group_membership import ConsumerGroupHeartbeatHandler

    return ConsumerGroupHeartbeatHandler(broker.coordinators.groups, broker.authorizer, broker.serves_consumer_protocol)


def _describe_groups(broker: Broker) -> ReturningHandler[DescribeGroupsRequest]:
    from braidlog.broker.handlers.groups.group_administration import DescribeGroupsHandler

    return DescribeGroupsHandler(broker.coordinators.groups, broker.authorizer)


def _list_groups(broker: Broker) -> ReturningHandler[ListGroupsRequest]:
    from braidlog.broker.handlers.groups.list_groups import ListGroupsHandler

    return ListGroupsHandler(broker.coordinators.groups, broker.authorizer)


def _delete_groups(broker: Broker) -> ReturningHandler[DeleteGroupsRequest]:
    from braidlog.broker.handlers.groups.group_administration import DeleteGroupsHandler

    return DeleteGroupsHandler(broker.coordinators.groups, broker.authorizer)


def _consumer_group_describe(broker: Broker) -> ReturningHandler[ConsumerGroupDescribeRequest]:
    from braidlog.broker.handlers.groups.group_administration import ConsumerGroupDescribeHandler

    return ConsumerGroupDescribeHandler(broker.coordinators.groups, broker.authorizer, broker.serves_consumer_protocol)


# Transactions


def _init_producer_id(broker: Broker) -> ReturningHandler[InitProducerIdRequest]:
    from braidlog.broker.handlers.transactions.producer_transactions import InitProducerIdHandler

    return InitProducerIdHandler(broker.producer_ids, broker.coordinators.transactions, broker.authorizer)


def _add_partitions_to_txn(broker: Broker) -> RespondingHandler[AddPartitionsToTxnRequest]:
    from braidlog.broker.handlers.transactions.add_partitions_to_txn import AddPartitionsToTxnHandler

    return AddPartitionsToTxnHandler(
        broker.coordinators.transactions,
        broker.coordinators.early_requests,
        broker.metadata_cache,
        broker.authorizer,
    )


def _add_offsets_to_txn(broker: Broker) -> RespondingHandler[AddOffsetsToTxnRequest]:
    from braidlog.broker.handlers.transactions.producer_transactions import AddOffsetsToTxnHandler

    return AddOffsetsToTxnHandler(broker.coordinators.early_requests, broker.coordinators.groups, broker.authorizer)


def _end_txn(broker: Broker) -> RespondingHandler[EndTxnRequest]:
    from braidlog.broker.handlers.transactions.producer_transactions import EndTxnHandler

    return EndTxnHandler(broker.coordinators.transactions, broker.authorizer)


def _write_txn_markers(broker: Broker) -> RespondingHandler[WriteTxnMarkersRequest]:
    from braidlog.broker.handlers.transactions.write_txn_markers import WriteTxnMarkersHandler

    return WriteTxnMarkersHandler(broker.coordinators.markers, broker.authorizer)


def _describe_producers(broker: Broker) -> ReturningHandler[DescribeProducersRequest]:
    from braidlog.broker.handlers.transactions.describe_transactions import DescribeProducersHandler

    return DescribeProducersHandler(broker.registry, broker.authorizer)


def _describe_transactions(broker: Broker) -> ReturningHandler[DescribeTransactionsRequest]:
    from braidlog.broker.handlers.transactions.describe_transactions import DescribeTransactionsHandler

    return DescribeTransactionsHandler(broker.coordinators.transactions, broker.authorizer)


def _list_transactions(broker: Broker) -> ReturningHandler[ListTransactionsRequest]:
    from braidlog.broker.handlers.transactions.list_transactions import ListTransactionsHandler

    return ListTransactionsHandler(broker.coordinators.transactions, broker.authorizer)


# Between brokers


def _leader_and_isr(broker: Broker) -> ReturningHandler[LeaderAndIsrRequest]:
    from braidlog.broker.handlers.interbroker.control_plane import LeaderAndIsrHandler

    return LeaderAndIsrHandler(broker.control_channel, broker.inter_broker)


def _stop_replica(broker: Broker) -> ReturningHandler[StopReplicaRequest]:
    from braidlog.broker.handlers.interbroker.control_plane import StopReplicaHandler

    return StopReplicaHandler(broker.control_channel)


def _update_metadata(broker: Broker) -> ReturningHandler[UpdateMetadataRequest]:
    from braidlog.broker.handlers.interbroker.control_plane import UpdateMetadataHandler

    return UpdateMetadataHandler(broker.control_channel)


def _controlled_shutdown(broker: Broker) -> ReturningHandler[ControlledShutdownRequest]:
    from braidlog.broker.handlers.interbroker.control_plane import ControlledShutdownHandler

    return ControlledShutdownHandler(broker.controller)


def _allocate_producer_ids(broker: Broker) -> ReturningHandler[AllocateProducerIdsRequest]:
    from braidlog.broker.handlers.interbroker.control_plane import AllocateProducerIdsHandler

    return AllocateProducerIdsHandler(broker.controller)


def _alter_partition(broker: Broker) -> ReturningHandler[AlterPartitionRequest]:
    from braidlog.broker.handlers.interbroker.control_plane import AlterPartitionHandler

    return AlterPartitionHandler(broker.controller)


RETURNING: Final[dict[ApiKey, Callable[[Broker], ReturningHandler[Any]]]] = {
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.DESCRIBE_ACLS: _describe_acls,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_delegation_token,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_partition_reassignments,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: _list_client_metrics_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}

# Only in a cluster, and only between brokers.
INTER_BROKER: Final[dict[ApiKey, Callable[[Broker], ReturningHandler[Any]]]] = {
    ApiKey.LEADER_AND_ISR: _leader_and_isr,
    ApiKey.STOP_REPLICA: _stop_replica,
    ApiKey.UPDATE_METADATA: _update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: _controlled_shutdown,
    ApiKey.ALTER_PARTITION: _alter_partition,
    ApiKey.ALLOCATE_PRODUCER_IDS: _allocate_producer_ids,
}

RESPONDING: Final[dict[ApiKey, Callable[[Broker], RespondingHandler[Any]]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.SASL_HANDSHAKE: _sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: _sasl_authenticate,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _end_txn,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
}
