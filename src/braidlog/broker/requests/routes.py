"""Which handler answers which api; modules that clients rarely call are imported by their first request."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from braidlog.broker.handlers.cluster.api_versions import ApiVersionsHandler
from braidlog.broker.handlers.records.list_offsets import ListOffsetsHandler
from braidlog.broker.handlers.topics import metadata
from braidlog.broker.handlers.topics.metadata import MetadataHandler
from braidlog.broker.requests.dispatch import CALL, FLOW, Route
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.broker.requests.responders import ExchangeResponder
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.message import Message

if TYPE_CHECKING:
    from types import ModuleType

    from braidlog.broker.broker import Broker


class LazyHandler:
    """A handler whose module is imported when first called."""

    def __init__(
        self, module: str, make: Callable[[ModuleType], Any], error_response: str | None = "error_response"
    ) -> None:
        self._module = f"braidlog.broker.handlers.{module}"
        self._make = make
        self._error_response_name = error_response
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
            error = to_protocol_error(problem, f"{self._module} v{exchange.version}")
            ExchangeResponder(exchange, request, self.error_response).fail(error)

    def error_response(self, request: Message, version: int, error: ProtocolError) -> Message | None:
        handler = self._load()
        owner = handler if hasattr(handler, "error_response") else self._loaded
        error_response = getattr(owner, self._error_response_name or "", None)
        response: Message | None = error_response(request, version, error) if error_response is not None else None
        return response


def add_routes(broker: Broker) -> None:
    dispatch = broker.dispatch
    settings = broker.settings.current
    controller = broker.controller

    def lazy(
        key: int, module: str, make: Callable[[ModuleType], Any], error_response: str | None = "error_response"
    ) -> None:
        handler = LazyHandler(module, make, error_response)
        dispatch.add(Route(key, CALL, handler.handle, handler.error_response))

    versions = ApiVersionsHandler(dispatch.routes)
    auto_create = settings.get_bool("auto.create.topics.enable")
    topics = MetadataHandler(controller, broker.registry, auto_create, broker.coordinators.topics.wanted)
    dispatch.add(Route(0, FLOW, broker.produce.handle, None))
    dispatch.add(Route(1, FLOW, broker.fetch.handle, None))
    dispatch.add(Route(2, CALL, ListOffsetsHandler(broker.registry).handle, None))
    dispatch.add(Route(3, CALL, topics.handle, metadata.error_response))
    dispatch.add(Route(18, CALL, versions.handle, versions.error_response))
    lazy(19, "topics.create_topics", lambda m: m.CreateTopicsHandler(controller, broker.settings))
    lazy(20, "topics.delete_topics", lambda m: m.DeleteTopicsHandler(controller))
    lazy(21, "records.delete_records", lambda m: m.DeleteRecordsHandler(broker.registry))
    lazy(23, "records.offset_for_leader_epoch", lambda m: m.OffsetForLeaderEpochHandler(broker.registry))
    lazy(
        32,
        "cluster.describe_configs",
        lambda m: m.DescribeConfigsHandler(controller, broker.settings, broker.broker_id),
    )
    lazy(33, "cluster.alter_configs", lambda m: m.AlterConfigsHandler(controller))
    lazy(34, "cluster.alter_replica_log_dirs", lambda m: m.AlterReplicaLogDirsHandler(broker.logs, broker.moves))
    lazy(35, "cluster.describe_log_dirs", lambda m: m.DescribeLogDirsHandler(broker.logs))
    lazy(37, "topics.create_partitions", lambda m: m.CreatePartitionsHandler(controller))
    lazy(43, "topics.elect_leaders", lambda m: m.ElectLeadersHandler(controller))
    lazy(44, "cluster.alter_configs", lambda m: m.IncrementalAlterConfigsHandler(controller, broker.broker_id))
    lazy(45, "topics.reassignments", lambda m: m.AlterReassignmentsHandler(controller), "alter_error_response")
    lazy(46, "topics.reassignments", lambda m: m.ListReassignmentsHandler(controller), "list_error_response")
    lazy(60, "cluster.describe_cluster", lambda m: m.DescribeClusterHandler(controller))
    lazy(74, "cluster.list_client_metrics_resources", lambda m: m.ListClientMetricsResourcesHandler())
    most = settings.get_int("max.request.partition.size.limit")
    lazy(
        75,
        "topics.describe_topic_partitions",
        lambda m: m.DescribeTopicPartitionsHandler(controller, broker.registry, most),
    )
