"""Which handler answers which api of groups and transactions; all are imported by their first request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from braidlog.broker.dispatch import CALL, FLOW, Route
from braidlog.broker.routes import Late

if TYPE_CHECKING:
    from types import ModuleType

    from braidlog.broker.broker import Broker


def add_coordinator_routes(broker: Broker) -> None:
    dispatch = broker.dispatch
    controller = broker.controller
    coordination = broker.coordination

    def late(key: int, module: str, make: Callable[[ModuleType], Any], refuse: str | None = "refuse") -> None:
        """A handler that returns its response, or a coroutine for it."""
        handler = Late(module, make, refuse)
        dispatch.add(Route(key, CALL, handler.handle, handler.refuse))

    def flow(key: int, module: str, make: Callable[[ModuleType], Any], refuse: str | None = "refuse") -> None:
        """A handler that answers its exchange itself, later."""
        handler = Late(module, make, refuse)
        dispatch.add(Route(key, FLOW, handler.flow, handler.refuse))

    late(10, "find_coordinator", lambda m: m.FindCoordinatorHandler(controller, coordination.topics))
    late(61, "describe_producers", lambda m: m.DescribeProducersHandler(broker.registry))
    flow(
        27,
        "write_txn_markers",
        lambda m: m.WriteTxnMarkersHandler(
            m.MarkerWriter(broker.registry, broker.committer, broker.seams.clock, coordination.groups)
        ),
    )
