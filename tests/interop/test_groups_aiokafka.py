"""aiokafka as members of groups, by itself and together with the other clients of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import group_scenarios as scenarios
from support.broker import Broker
from support.groups import group_under_test
from support.repetitions import some

FLAVOURS: dict[str, dict[str, Any]] = {name: {"assignors": [name]} for name in ("range", "sticky")}


# Both are eager; sticky has more to say of itself.
@pytest.mark.parametrize("flavour", some(FLAVOURS, "sticky"))
def test_members_join_leave_die_and_stall(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "aiokafka", **FLAVOURS[flavour]) as group:
        scenarios.live_through_changes(group)


def test_a_static_member_returns_without_a_rebalance(quick_broker: Broker, topic: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "aiokafka") as group:
        patience = {"session_timeout_ms": scenarios.PATIENT_SESSION_MS}
        scenarios.static_member_returns(group, "group_instance_id", patience, killed=True)


def test_new_partitions_are_read(quick_broker: Broker, topic: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "aiokafka") as group:
        scenarios.new_partitions_are_read(group, 9)


def test_a_pattern_finds_new_topics(quick_broker: Broker, topic: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "aiokafka") as group:
        scenarios.a_pattern_finds_new_topics(group, f"^{topic}.*", f"{topic}-new")


def test_commits_outlive_the_broker(target_kind: str, tmp_path: Path) -> None:
    scenarios.commits_outlive_the_broker(target_kind, tmp_path / "data", "aiokafka", {}, kill=True)


def test_clients_of_three_kinds_share_one_group(quick_broker: Broker, topic: str) -> None:
    """Each is the leader for a while, so each one's assignments are understood by the others."""
    range_only: dict[str, dict[str, Any]] = {
        "confluent": {"partition.assignment.strategy": "range"},
        "kafka-python": {"assignors": ["range"]},
        "aiokafka": {"assignors": ["range"]},
    }
    with group_under_test(quick_broker.bootstrap, topic, "confluent") as group:
        with group.writing():
            members = []
            for client, settings in range_only.items():
                members.append(group.start(f"{client} member", client, settings=settings))
                group.settle(*members)
            group.read_all()
            group.history().check_nothing_is_read_twice()
            first, second, third = members
            first.kill()
            group.settle(second, third)
            second.leave()
            group.settle(third)
            again = group.start("confluent again", "confluent", settings=range_only["confluent"])
            group.settle(third, again)
        group.read_all()
        group.history().check(group.written())
