"""confluent-kafka (librdkafka) as members of groups: both protocols, every assignor, through joins, deaths and pauses."""

from __future__ import annotations

from typing import Any

import pytest

from support.broker import Broker
from support.groups import group_under_test, live_through_changes

CLASSIC = ("range", "roundrobin", "cooperative-sticky")
FLAVOURS: dict[str, dict[str, Any]] = {
    **{name: {"partition.assignment.strategy": name} for name in CLASSIC},
    "consumer-uniform": {"group.protocol": "consumer"},
    "consumer-range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_members_join_leave_die_and_stall(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS[flavour]) as group:
        live_through_changes(group)
