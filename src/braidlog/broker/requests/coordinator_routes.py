"""Which handler answers which api of groups and transactions; all are imported by their first request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from braidlog.broker.coordinators.coordinators import ImageTopics
from braidlog.broker.requests.dispatch import CALL, FLOW, Route
from braidlog.broker.requests.routes import LazyHandler
from braidlog.cluster.legacy_offsets import LegacyOffsets

if TYPE_CHECKING:
    from types import ModuleType

    from braidlog.broker.broker import Broker


def add_coordinator_routes(broker: Broker) -> None:
    dispatch = broker.dispatch
    controller = broker.controller
    coordinators = broker.coordinators
    transactions = coordinators.transactions

    def lazy(
        key: int, module: str, make: Callable[[ModuleType], Any], error_response: str | None = "error_response"
    ) -> None:
        """A handler that returns its response, or a coroutine for it."""
        handler = LazyHandler(module, make, error_response)
        dispatch.add(Route(key, CALL, handler.handle, handler.error_response))

    def flow(
        key: int, module: str, make: Callable[[ModuleType], Any], error_response: str | None = "error_response"
    ) -> None:
        """A handler that answers its exchange itself, later."""
        handler = LazyHandler(module, make, error_response)
        dispatch.add(Route(key, FLOW, handler.flow, handler.error_response))

    topics = ImageTopics(controller)
    legacy = LegacyOffsets(broker.session)

    def metadata_limit() -> int:
        return broker.settings.current.get_int("offset.metadata.max.bytes")

    def verifies() -> bool:
        return broker.settings.current.get_bool("transaction.partition.verification.enable")

    groups = coordinators.groups
    flow(
        8, "groups.offset_commit", lambda m: m.OffsetCommitHandler(groups, topics, legacy, broker.tasks, metadata_limit)
    )
    flow(9, "groups.offset_fetch", lambda m: m.OffsetFetchHandler(groups, topics, legacy, broker.tasks))
    lazy(10, "cluster.find_coordinator", lambda m: m.FindCoordinatorHandler(controller, coordinators.topics))
    flow(11, "groups.join_group", lambda m: m.JoinGroupHandler(coordinators.groups))
    flow(12, "groups.heartbeat", lambda m: m.HeartbeatHandler(coordinators.groups))
    flow(13, "groups.leave_group", lambda m: m.LeaveGroupHandler(coordinators.groups))
    flow(14, "groups.sync_group", lambda m: m.SyncGroupHandler(coordinators.groups))
    lazy(15, "groups.describe_groups", lambda m: m.DescribeGroupsHandler(coordinators.groups))
    lazy(16, "groups.list_groups", lambda m: m.ListGroupsHandler(coordinators.groups))
    flow(
        28,
        "groups.txn_offset_commit",
        lambda m: m.TxnOffsetCommitHandler(groups, coordinators.add_partitions_manager, topics, verifies),
    )
    flow(47, "groups.offset_delete", lambda m: m.OffsetDeleteHandler(groups, topics))
    lazy(42, "groups.delete_groups", lambda m: m.DeleteGroupsHandler(coordinators.groups))
    flow(68, "groups.consumer_group_heartbeat", lambda m: m.ConsumerGroupHeartbeatHandler(groups))
    lazy(69, "groups.consumer_group_describe", lambda m: m.ConsumerGroupDescribeHandler(groups))
    lazy(61, "transactions.describe_producers", lambda m: m.DescribeProducersHandler(broker.registry))
    lazy(22, "transactions.init_producer_id", lambda m: m.InitProducerIdHandler(broker.producer_ids, transactions))
    flow(24, "transactions.add_partitions_to_txn", lambda m: m.AddPartitionsToTxnHandler(transactions, controller))
    flow(25, "transactions.add_offsets_to_txn", lambda m: m.AddOffsetsToTxnHandler(transactions, coordinators.groups))
    flow(26, "transactions.end_txn", lambda m: m.EndTxnHandler(transactions))
    flow(27, "transactions.write_txn_markers", lambda m: m.WriteTxnMarkersHandler(coordinators.markers))
    lazy(65, "transactions.describe_transactions", lambda m: m.DescribeTransactionsHandler(transactions))
    lazy(66, "transactions.list_transactions", lambda m: m.ListTransactionsHandler(transactions))
