"""Which handler answers which api; modules that clients rarely call are imported by their first request."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from braidlog.broker.dispatch import CALL, FLOW, Route
from braidlog.broker.faults import error_of
from braidlog.broker.handlers import metadata
from braidlog.broker.handlers.api_versions import ApiVersionsHandler
from braidlog.broker.handlers.list_offsets import ListOffsetsHandler
from braidlog.broker.handlers.metadata import MetadataHandler
from braidlog.broker.tickets import ExchangeTicket
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.message import Message

if TYPE_CHECKING:
    from types import ModuleType

    from braidlog.broker.broker import Broker


class Late:
    """A handler whose module is imported when first called."""

    def __init__(self, module: str, make: Callable[[ModuleType], Any], refuse: str | None = "refuse") -> None:
        self._module = f"braidlog.broker.handlers.{module}"
        self._make = make
        self._refuse_name = refuse
        self._loaded: ModuleType | None = None
        self._handler: Any = None

    def _load(self) -> Any:
        if self._handler is None:
            self._loaded = import_module(self._module)
            self._handler = self._make(self._loaded)
        return self._handler

    def handle(self, request: Message, exchange: Exchange) -> Any:
        return self._load().handle(request, exchange)

    def flow(self, request: Message, exchange: Exchange) -> None:
        """For handlers that answer the exchange themselves; what fails before they took it on is told here."""
        try:
            self._load().handle(request, exchange)
        except Exception as problem:
            error = error_of(problem, f"{self._module} v{exchange.version}")
            ExchangeTicket(exchange, request, self.refuse).fail(error)

    def refuse(self, request: Message, version: int, error: ProtocolError) -> Message | None:
        handler = self._load()
        owner = handler if hasattr(handler, "refuse") else self._loaded
        refuse = getattr(owner, self._refuse_name or "", None)
        response: Message | None = refuse(request, version, error) if refuse is not None else None
        return response


def add_routes(broker: Broker) -> None:
    dispatch = broker.dispatch
    settings = broker.settings.current
    controller = broker.controller

    def late(key: int, module: str, make: Callable[[ModuleType], Any], refuse: str | None = "refuse") -> None:
        handler = Late(module, make, refuse)
        dispatch.add(Route(key, CALL, handler.handle, handler.refuse))

    versions = ApiVersionsHandler(dispatch.routes)
    auto_create = settings.get_bool("auto.create.topics.enable")
    topics = MetadataHandler(controller, broker.registry, auto_create, broker.coordination.topics.wanted)
    dispatch.add(Route(0, FLOW, broker.produce.handle, None))
    dispatch.add(Route(1, FLOW, broker.fetch.handle, None))
    dispatch.add(Route(2, CALL, ListOffsetsHandler(broker.registry).handle, None))
    dispatch.add(Route(3, CALL, topics.handle, metadata.refuse))
    dispatch.add(Route(18, CALL, versions.handle, versions.refuse))
    late(19, "create_topics", lambda m: m.CreateTopicsHandler(controller, broker.settings))
    late(20, "delete_topics", lambda m: m.DeleteTopicsHandler(controller))
    late(21, "delete_records", lambda m: m.DeleteRecordsHandler(broker.registry))
    late(23, "offset_for_leader_epoch", lambda m: m.OffsetForLeaderEpochHandler(broker.registry))
    late(32, "describe_configs", lambda m: m.DescribeConfigsHandler(controller, broker.settings, broker.broker_id))
    late(33, "alter_configs", lambda m: m.AlterConfigsHandler(controller))
    late(34, "alter_replica_log_dirs", lambda m: m.AlterReplicaLogDirsHandler(broker.logs, broker.moves))
    late(35, "describe_log_dirs", lambda m: m.DescribeLogDirsHandler(broker.logs))
    late(37, "create_partitions", lambda m: m.CreatePartitionsHandler(controller))
    late(43, "elect_leaders", lambda m: m.ElectLeadersHandler(controller))
    late(44, "alter_configs", lambda m: m.IncrementalAlterConfigsHandler(controller, broker.broker_id))
    late(45, "reassignments", lambda m: m.AlterReassignmentsHandler(controller), "refuse_alter")
    late(46, "reassignments", lambda m: m.ListReassignmentsHandler(controller), "refuse_list")
    late(60, "describe_cluster", lambda m: m.DescribeClusterHandler(controller))
    late(74, "list_client_metrics_resources", lambda m: m.ListClientMetricsResourcesHandler())
    most = settings.get_int("max.request.partition.size.limit")
    late(75, "describe_topic_partitions", lambda m: m.DescribeTopicPartitionsHandler(controller, broker.registry, most))
