"""Settings that a group has for itself (KIP-848), as third-party admin clients change them and members feel them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType

from braidlog.client import admin as ours
from braidlog.core import protocol_errors as errors
from braidlog.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from support import confluent, kafka_python
from support.broker import BRAIDLOG, Broker, start_braidlog
from support.eventually import eventually
from support.raw import ask

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
NOT_YET = (errors.CoordinatorLoadInProgressError.code, errors.NotCoordinatorError.code)
# A session short enough to wait for its end, and one that outlasts any test.
BOUNDS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture(autouse=True)
def _settings_of_groups(target_kind: str) -> None:
    if target_kind != BRAIDLOG:
        pytest.skip("Kafka has settings of groups from 4.0 on")


def beat(broker: Broker, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    answer: Any = ask(broker.port, "ConsumerGroupHeartbeat", 1, request)
    assert answer.error_code == 0, answer
    return answer


def join(broker: Broker, group: str, member_id: str, topic: str) -> Any:
    reported = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    return beat(broker, group, member_id, 0, **reported)


def wait_for_coordinator(broker: Broker, group: str) -> None:
    """The first one who asks for a coordinator has the offsets topic made; its shards are loaded soon after."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])

    def found() -> bool:
        answer: Any = ask(broker.port, "FindCoordinator", 4, find)
        return bool(answer.coordinators[0].error_code == 0 and described(broker, group).error_code not in NOT_YET)

    eventually(found)


def described(broker: Broker, group: str) -> Any:
    answer: Any = ask(broker.port, "ConsumerGroupDescribe", 0, ConsumerGroupDescribeRequest(group_ids=[group]))
    return answer.groups[0]


def members(broker: Broker, group: str) -> list[str]:
    found = described(broker, group)
    assert found.error_code == 0, found
    return sorted(member.member_id for member in found.members)


def test_confluent_changes_and_describes_them(broker: Broker, topic: str) -> None:
    admin = confluent.admin(broker.bootstrap)

    def described() -> dict[str, tuple[str, int]]:
        resource = ConfigResource(ResourceType.GROUP, topic)
        entries = admin.describe_configs([resource])[resource].result(30)
        return {name: (entry.value, entry.source) for name, entry in entries.items()}

    def alter(name: str, value: str | None, how: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    default = {
        SESSION: ("45000", ConfigSource.DEFAULT_CONFIG.value),
        HEARTBEAT: ("5000", ConfigSource.DEFAULT_CONFIG.value),
    }
    assert described() == default
    alter(SESSION, "50000", AlterConfigOpType.SET)
    assert described() == {**default, SESSION: ("50000", ConfigSource.GROUP_CONFIG.value)}
    with pytest.raises(KafkaException) as refused:
        alter(SESSION, "44999", AlterConfigOpType.SET)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "group.consumer.min.session.timeout.ms" in refused.value.args[0].str()
    alter(SESSION, None, AlterConfigOpType.DELETE)
    assert described() == default


def test_kafka_python_changes_and_describes_them(broker: Broker, topic: str) -> None:
    resource = PythonResource(ConfigResourceType.GROUP, topic)
    with kafka_python.admin(broker.bootstrap) as admin:

        def modified() -> dict[str, str]:
            entries = admin.describe_configs([resource])["group"][topic]
            return {name: entry["value"] for name, entry in entries.items()}

        assert modified() == {}
        admin.alter_configs([PythonResource(ConfigResourceType.GROUP, topic, {HEARTBEAT: "6000"})])
        assert modified() == {HEARTBEAT: "6000"}
        wrong = PythonResource(ConfigResourceType.GROUP, topic, {HEARTBEAT: "15001"})
        assert "InvalidConfig" in str(admin.alter_configs([wrong])["group"][topic])
        admin.reset_configs([PythonResource(ConfigResourceType.GROUP, topic, [HEARTBEAT])])
        assert modified() == {}


def test_our_admin_changes_and_describes_them(broker: Broker, topic: str) -> None:
    group = ours.ConfigResource.group(f"{topic}/with a slash")
    with ours.Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.alter_configs({group: {SESSION: "50000"}}) == {group: None}
        entry = admin.describe_configs([group])[group][SESSION]
        assert (entry.value, entry.source) == ("50000", ours.ConfigSource.GROUP)
        nobody = ours.ConfigResource.group("")
        refused = admin.alter_configs({nobody: {SESSION: "50000"}}).errors[nobody]
        assert isinstance(refused, errors.InvalidRequestError)
        assert isinstance(admin.describe_configs([nobody]).errors[nobody], errors.InvalidRequestError)


def test_members_feel_a_change_at_once_and_after_a_restart(tmp_path: Path, topic: str) -> None:
    resource = ours.ConfigResource.group(topic)
    with start_braidlog(tmp_path, BOUNDS) as broker, ours.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([ours.NewTopic(topic, partitions=2)]).raise_for_errors()
        wait_for_coordinator(broker, topic)
        assert join(broker, topic, "a", topic).heartbeat_interval_ms == 5000
        assert join(broker, topic, "b", topic).heartbeat_interval_ms == 5000
        admin.alter_configs({resource: {HEARTBEAT: "700", SESSION: "1000"}}).raise_for_errors()
        assert beat(broker, topic, "a", 1).heartbeat_interval_ms == 700
        eventually(lambda: members(broker, topic) == ["b"])
        # The coordinator has it from the store when it comes back, before it gives its members their sessions.
        broker.kill()
    with start_braidlog(tmp_path, BOUNDS) as broker, ours.Admin(bootstrap_servers=broker.bootstrap) as admin:
        entries = admin.describe_configs([resource])[resource]
        assert {name: entry.value for name, entry in entries.items()} == {HEARTBEAT: "700", SESSION: "1000"}
        wait_for_coordinator(broker, topic)
        eventually(lambda: members(broker, topic) == [])
        assert join(broker, topic, "c", topic).heartbeat_interval_ms == 700
