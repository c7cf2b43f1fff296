"""A port that a broker can come back to after a crash."""

from __future__ import annotations

from braidlog.testing.zookeeper import lasting_ports


def lasting_port() -> int:
    return lasting_ports(1)[0]
