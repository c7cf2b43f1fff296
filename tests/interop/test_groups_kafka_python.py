"""kafka-python as members of groups: eager and cooperative, static members, offsets of every kind.

No growing topics and no patterns: this client (3.0.12) often spins in a rebalance that its own metadata refresh began,
on Apache Kafka, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition, errors

from support import confluent, kafka_python
from support import group_scenarios as scenarios
from support.broker import Broker
from support.groups import group_under_test
from support.repetitions import some
from support.samples import plain_samples

FLAVOURS: dict[str, dict[str, Any]] = {name: {"assignors": [name]} for name in ("range", "cooperative-sticky")}


# Eager members of this client share with ours in test_client_groups.py.
@pytest.mark.parametrize("flavour", some(FLAVOURS, "cooperative-sticky"))
def test_members_join_leave_die_and_stall(quick_broker: Broker, topic: str, flavour: str) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "kafka-python", **FLAVOURS[flavour]) as group:
        scenarios.live_through_changes(group)


@pytest.mark.parametrize("killed", [False, True], ids=["restarted", "killed"])
def test_a_static_member_returns_without_a_rebalance(quick_broker: Broker, topic: str, killed: bool) -> None:
    with group_under_test(quick_broker.bootstrap, topic, "kafka-python") as group:
        patience = {"session_timeout_ms": scenarios.PATIENT_SESSION_MS}
        scenarios.static_member_returns(group, "group_instance_id", patience, killed=killed)


def test_commits_outlive_the_broker(target_kind: str, tmp_path: Path) -> None:
    scenarios.commits_outlive_the_broker(target_kind, tmp_path / "data", "kafka-python", {}, kill=True)


def test_offsets_without_a_group_of_members(quick_broker: Broker, topic: str) -> None:
    """Offsets of a consumer that assigns partitions to itself: kept with their metadata, forgotten on request."""
    confluent.create_topic(quick_broker.bootstrap, topic, 2)
    with kafka_python.producer(quick_broker.bootstrap) as sender:
        kafka_python.send(sender, topic, plain_samples(10))
    here, beside = TopicPartition(topic, 0), TopicPartition(topic, 1)
    group = f"{topic}-group"

    def consumer() -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=quick_broker.bootstrap, group_id=group, enable_auto_commit=False)

    one = consumer()
    one.assign([here])
    assert one.committed(here) is None
    one.commit({here: OffsetAndMetadata(7, "läuft", -1)})
    one.close(autocommit=False)
    other = consumer()
    other.assign([here])
    assert other.committed(here, metadata=True) == OffsetAndMetadata(7, "läuft", -1)
    assert other.committed(beside) is None
    assert kafka_python.read(other, 1)[0].offset == 7
    with pytest.raises(errors.OffsetMetadataTooLargeError):
        other.commit({here: OffsetAndMetadata(8, "x" * 5000, -1)})
    assert other.committed(here) == 7
    other.close(autocommit=False)
    with kafka_python.admin(quick_broker.bootstrap) as client:
        assert client.list_group_offsets([group])[group][here].offset == 7
        client.delete_groups([group])
    with kafka_python.assigned(quick_broker.bootstrap, topic, group_id=group) as third:
        assert third.committed(here) is None
