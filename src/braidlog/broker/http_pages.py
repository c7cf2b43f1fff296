"""The pages of the side port: /metrics for Prometheus, /healthz and /readyz for whoever restarts or routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from braidlog.broker.broker_metrics import broker_metrics
from braidlog.metrics import CONTENT_TYPE
from braidlog.net.http import Page

if TYPE_CHECKING:
    from braidlog.broker.server import Server


def http_pages(server: Server) -> dict[str, Callable[[], Page]]:
    metrics = broker_metrics(server)
    return {
        "/metrics": lambda: Page(200, metrics.text(), CONTENT_TYPE),
        "/healthz": lambda: _health(server),
        "/readyz": lambda: Page(200, "ready\n") if server.broker.ready else Page(503, "not ready\n"),
    }


def _health(server: Server) -> Page:
    """Alive; a failed data directory is worth saying, but restarting would not mend it."""
    failed = [directory for directory in server.broker.logs.directories if not directory.is_online]
    if not failed:
        return Page(200, "ok\n")
    message = "".join(f"data directory {directory.path} is offline: {directory.failure}\n" for directory in failed)
    return Page(200, "ok, but degraded\n" + message)
