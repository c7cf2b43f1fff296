"""Which handler answers which api of groups and transactions; all are imported by their first request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from braidlog.broker.coordination import ImageTopics
from braidlog.broker.dispatch import CALL, FLOW, Route
from braidlog.broker.routes import Late
from braidlog.cluster.legacy_offsets import LegacyOffsets

if TYPE_CHECKING:
    from types import ModuleType

    from braidlog.broker.broker import Broker


def add_coordinator_routes(broker: Broker) -> None:
    dispatch = broker.dispatch
    controller = broker.controller
    coordination = broker.coordination
    transactions = coordination.transactions

    def late(key: int, module: str, make: Callable[[ModuleType], Any], refuse: str | None = "refuse") -> None:
        """A handler that returns its response, or a coroutine for it."""
        handler = Late(module, make, refuse)
        dispatch.add(Route(key, CALL, handler.handle, handler.refuse))

    def flow(key: int, module: str, make: Callable[[ModuleType], Any], refuse: str | None = "refuse") -> None:
        """A handler that answers its exchange itself, later."""
        handler = Late(module, make, refuse)
        dispatch.add(Route(key, FLOW, handler.flow, handler.refuse))

    topics = ImageTopics(controller)
    legacy = LegacyOffsets(broker.session)

    def metadata_limit() -> int:
        return broker.settings.current.get_int("offset.metadata.max.bytes")

    def verifies() -> bool:
        return broker.settings.current.get_bool("transaction.partition.verification.enable")

    groups = coordination.groups
    flow(8, "offset_commit", lambda m: m.OffsetCommitHandler(groups, topics, legacy, broker.tasks, metadata_limit))
    flow(9, "offset_fetch", lambda m: m.OffsetFetchHandler(groups, topics, legacy, broker.tasks))
    late(10, "find_coordinator", lambda m: m.FindCoordinatorHandler(controller, coordination.topics))
    flow(11, "join_group", lambda m: m.JoinGroupHandler(coordination.groups))
    flow(12, "heartbeat", lambda m: m.HeartbeatHandler(coordination.groups))
    flow(13, "leave_group", lambda m: m.LeaveGroupHandler(coordination.groups))
    flow(14, "sync_group", lambda m: m.SyncGroupHandler(coordination.groups))
    late(15, "describe_groups", lambda m: m.DescribeGroupsHandler(coordination.groups))
    late(16, "list_groups", lambda m: m.ListGroupsHandler(coordination.groups))
    flow(28, "txn_offset_commit", lambda m: m.TxnOffsetCommitHandler(groups, coordination.desk, topics, verifies))
    flow(47, "offset_delete", lambda m: m.OffsetDeleteHandler(groups, topics))
    late(42, "delete_groups", lambda m: m.DeleteGroupsHandler(coordination.groups))
    flow(68, "consumer_group_heartbeat", lambda m: m.ConsumerGroupHeartbeatHandler(groups))
    late(69, "consumer_group_describe", lambda m: m.ConsumerGroupDescribeHandler(groups))
    late(61, "describe_producers", lambda m: m.DescribeProducersHandler(broker.registry))
    late(22, "init_producer_id", lambda m: m.InitProducerIdHandler(broker.producer_ids, transactions))
    flow(24, "add_partitions_to_txn", lambda m: m.AddPartitionsToTxnHandler(transactions, controller))
    flow(25, "add_offsets_to_txn", lambda m: m.AddOffsetsToTxnHandler(transactions, coordination.groups))
    flow(26, "end_txn", lambda m: m.EndTxnHandler(transactions))
    flow(27, "write_txn_markers", lambda m: m.WriteTxnMarkersHandler(coordination.markers))
    late(65, "describe_transactions", lambda m: m.DescribeTransactionsHandler(transactions))
    late(66, "list_transactions", lambda m: m.ListTransactionsHandler(transactions))
