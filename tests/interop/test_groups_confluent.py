"""confluent-kafka (librdkafka) as members of groups: both protocols, every assignor, joins, deaths and pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support import group_scenarios as scenarios
from support.broker import KAFKA, Broker
from support.groups import LastingBroker, group_under_test
from support.repetitions import some

CLASSIC = ("range", "roundrobin", "cooperative-sticky")
FLAVOURS: dict[str, dict[str, Any]] = {
    **{name: {"partition.assignment.strategy": name} for name in CLASSIC},
    "consumer-uniform": {"group.protocol": "consumer"},
    "consumer-range": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}
NOT_ON_KAFKA = "librdkafka speaks the consumer protocol from ConsumerGroupHeartbeat v1 on, which Kafka 3.9 has not"
BOTH_PROTOCOLS = ("cooperative-sticky", "consumer-uniform")


@pytest.fixture(autouse=True)
def _can(request: pytest.FixtureRequest, target_kind: str) -> None:
    if target_kind == KAFKA and "consumer-" in request.node.name:
        pytest.skip(NOT_ON_KAFKA)


# Eager as range is; members of ours and of aiokafka share by it in test_client_groups.py.
@pytest.mark.parametrize("flavour", some(FLAVOURS, *(name for name in FLAVOURS if name != "roundrobin")))
def test_members_join_leave_die_and_stall(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS[flavour]) as group:
        scenarios.live_through_changes(group)


@pytest.mark.parametrize(("flavour", "killed"), scenarios.STATIC_RETURNS)
def test_a_static_member_returns_without_a_rebalance(
    quick_broker: Broker, topic: str, flavour: str, killed: bool
) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS[flavour]) as group:
        patience = {"session.timeout.ms": scenarios.PATIENT_SESSION_MS}
        scenarios.static_member_returns(group, "group.instance.id", patience, killed=killed)


def test_a_static_member_of_the_newer_protocol_returns(target_kind: str, tmp_path: Path, topic: str) -> None:
    """It says that it will be back; one that was killed could not, and is waited for until its session ends."""
    if target_kind == KAFKA:
        pytest.skip(NOT_ON_KAFKA)
    lasting = LastingBroker(target_kind, tmp_path / "data", {"group.consumer.session.timeout.ms": "60000"})
    flavour = FLAVOURS["consumer-uniform"]
    with lasting.life(), group_under_test(lasting.bootstrap, topic, "confluent", **flavour) as group:
        scenarios.static_member_returns(group, "group.instance.id", {}, killed=False)


def test_a_static_member_that_lives_twice_is_fenced(quick_broker: Broker, topic: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS["range"]) as group:
        settings = {"group.instance.id": "only"}
        first = group.start("only", settings=settings)
        group.settle(first)
        second = group.start("only", settings=settings)
        group.settle(second)
        first.process.wait_for_line(r"fenced by other consumer", timeout_s=30)
        group.writer.send(10)
        group.read_all()
        assert not any(note.kind == "read" for note in first.notes)
        group.history().check(group.written())


@pytest.mark.parametrize("flavour", BOTH_PROTOCOLS)
def test_new_partitions_are_read(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS[flavour]) as group:
        scenarios.new_partitions_are_read(group, 9)


@pytest.mark.parametrize("flavour", BOTH_PROTOCOLS)
def test_a_pattern_finds_new_topics(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "confluent", **FLAVOURS[flavour]) as group:
        scenarios.a_pattern_finds_new_topics(group, f"^{topic}.*", f"{topic}-new")


@pytest.mark.parametrize("flavour", ["range", "cooperative-sticky"])
def test_a_live_group_goes_over_to_the_newer_protocol_and_back(
    quick_broker: Broker, topic: str, flavour: str, target_kind: str
) -> None:
    if target_kind == KAFKA:
        pytest.skip(NOT_ON_KAFKA)
    old, new = FLAVOURS[flavour], FLAVOURS["consumer-uniform"]
    with group_under_test(quick_broker.bootstrap, topic, "confluent") as group:
        with group.writing():
            ann, bob = group.start("ann", settings=old), group.start("bob", settings=old)
            group.settle(ann, bob)
            cid = group.start("cid", settings=new)
            group.settle(ann, bob, cid)
            ann.leave()
            group.settle(bob, cid)
            bob.leave()
            dan = group.start("dan", settings=new)
            group.settle(cid, dan)
            eve = group.start("eve", settings=old)
            group.settle(cid, dan, eve)
            cid.kill()
            group.settle(dan, eve)
            dan.leave()
            fay = group.start("fay", settings=old)
            group.settle(eve, fay)
        group.read_all()
        group.history().check(group.written())


# A broker that is killed loses all that one loses that is stopped.
@pytest.mark.parametrize(
    "kill", [pytest.param(False, id="stopped", marks=pytest.mark.long), pytest.param(True, id="killed")]
)
@pytest.mark.parametrize("flavour", BOTH_PROTOCOLS)
def test_commits_outlive_the_broker(target_kind: str, tmp_path: Path, flavour: str, kill: bool) -> None:
    scenarios.commits_outlive_the_broker(target_kind, tmp_path / "data", "confluent", FLAVOURS[flavour], kill=kill)
