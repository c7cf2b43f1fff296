"""The pages of the side port: /metrics for Prometheus, /healthz and /readyz for whoever restarts or routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from braidlog.net.http import Page

if TYPE_CHECKING:
    from braidlog.broker.server import Server


def side_pages(server: Server) -> dict[str, Callable[[], Page]]:
    return {
        "/metrics": lambda: Page(200, "", "text/plain; version=0.0.4; charset=utf-8"),
        "/healthz": lambda: Page(200, "ok\n"),
        "/readyz": lambda: Page(200, "ready\n") if server.broker.ready else Page(503, "not ready\n"),
    }
