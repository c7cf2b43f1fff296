"""Policies of the cluster, as confluent-kafka and our own Admin meet them; and the same with Kafka 3.9."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tools.peers.kafka import start_kafka_with_zookeeper, start_zookeeper

from braidlog.client import Admin
from braidlog.client.admin import NewTopic as OurNewTopic
from braidlog.errors import PolicyViolationError
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from support import confluent
from support.broker import serve_command, start_braidlog
from support.eventually import eventually
from support.raw import ask

TESTS = Path(__file__).parent.parent
POLICIES = {
    "create.topic.policy.class.name": "support.example_policies:create",
    "alter.config.policy.class.name": "support.example_policies:Alter",
}
# confluent-kafka would rather not send AlterConfigs.
pytestmark = pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
WITH_POLICIES = {"PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))}
REFUSED = 44
Answers = dict[str, tuple[int, str | None]]


def told(future: Any) -> tuple[int, str | None]:
    try:
        future.result(30)
    except KafkaException as refused:
        return refused.args[0].code(), refused.args[0].str()
    return 0, None


def created(port: int, validate_only: bool, **topics: dict[str, str]) -> Answers:
    wanted = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in topics.items()
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=30_000, validate_only=validate_only)
    answer: Any = ask(port, "CreateTopics", 5, request)
    return {each.name: (each.error_code, each.error_message) for each in answer.topics}


def first_use(port: int, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    answer: Any = ask(port, "Metadata", 9, request)
    code: int = answer.topics[0].error_code
    return code


def changed(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str) -> tuple[int, str | None]:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    return told(admin.incremental_alter_configs([resource])[resource])


def replaced(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str) -> tuple[int, str | None]:
    resource = ConfigResource(kind, name, set_config={key: value})
    return told(admin.alter_configs([resource])[resource])


def answers(port: int) -> dict[str, object]:
    """What a cluster with the example policies says to its clients."""
    admin = confluent.admin(f"127.0.0.1:{port}")
    # Kafka is ready a little before its controller knows of it.
    eventually(lambda: bool(admin.list_topics(timeout=30).brokers))
    topics: dict[str, dict[str, str]] = {
        "allowed": {},
        "refused": {},
        "config": {},
        "broken": {},
        "short": {"retention.ms": "1"},
        "not a name": {},
    }
    found: dict[str, object] = {"checked": created(port, True, **topics), "created": created(port, False, **topics)}
    # A name that no policy should see, in words of its own.
    for each in ("checked", "created"):
        by_name: Any = found[each]
        by_name["not a name"] = by_name["not a name"][0]
    found["first use"] = [first_use(port, "refused.first"), first_use(port, "broken.first")]
    eventually(lambda: "allowed" in admin.list_topics(timeout=30).topics)
    topic, broker = ResourceType.TOPIC, ResourceType.BROKER
    found["altered"] = [
        changed(admin, topic, "allowed", "retention.ms", "1"),
        changed(admin, topic, "allowed", "retention.ms", "60000"),
        replaced(admin, topic, "allowed", "retention.ms", "1"),
        changed(admin, broker, "1", "message.max.bytes", "3"),
        changed(admin, broker, "1", "message.max.bytes", "2000000"),
    ]
    resource = ConfigResource(topic, "allowed")
    found["kept"] = admin.describe_configs([resource])[resource].result(30)["retention.ms"].value
    found["topics"] = sorted(admin.list_topics(timeout=30).topics)
    return found


EXPECTED_CREATED: dict[str, object] = {
    "allowed": (0, None),
    "refused": (REFUSED, "refused is refused: call it otherwise"),
    "config": (40, "another error of the protocol"),
    "broken": (-1, None),
    "short": (REFUSED, "short would lose its records: raise retention.ms"),
    "not a name": 17,
}


def test_clients_are_told_why_and_the_broker_goes_on(tmp_path: Path) -> None:
    with start_braidlog(tmp_path / "data", {"broker.id": "1", **POLICIES}, env=WITH_POLICIES) as broker:
        found = answers(broker.port)
        assert found["checked"] == EXPECTED_CREATED
        assert found["created"] == EXPECTED_CREATED
        assert found["first use"] == [REFUSED, -1]
        lost = (REFUSED, "allowed would lose its records: raise retention.ms")
        many = (REFUSED, "three bytes are too few")
        assert found["altered"] == [lost, (0, None), lost, many, (0, None)]
        assert found["kept"] == "60000"
        assert found["topics"] == ["allowed"]
        log = broker.log()
        assert "the policy support.example_policies:create failed on" in log
        assert "RuntimeError: a secret of the policy" in log
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            with pytest.raises(PolicyViolationError, match="refused-too is refused: call it otherwise"):
                admin.create_topics([OurNewTopic("refused-too")]).raise_for_errors()
            admin.create_topics([OurNewTopic("welcome")]).raise_for_errors()
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("com.example.Policy", "package.module:object"),
        ("no_such_module:policy", "PYTHONPATH"),
        ("support.example_policies:NOT_CALLABLE", "cannot be called"),
    ],
)
def test_a_policy_that_is_none_keeps_the_broker_from_starting(tmp_path: Path, policy: str, says: str) -> None:
    command = serve_command(tmp_path / "data", 0, {"create.topic.policy.class.name": policy})
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **WITH_POLICIES})
    assert ended.returncode != 0
    assert says in ended.stderr
    assert "create.topic.policy.class.name" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.peer
def test_kafka_says_the_same(apache_kafka: Path, tmp_path: Path) -> None:
    with kafka_with_policies(apache_kafka, tmp_path) as kafka_port:
        expected = answers(kafka_port)
    with start_braidlog(tmp_path / "ours", {"broker.id": "1", **POLICIES}, env=WITH_POLICIES) as broker:
        assert answers(broker.port) == expected


@contextmanager
def kafka_with_policies(apache_kafka: Path, place: Path) -> Iterator[int]:
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    libs = place / "libs"
    libs.mkdir()
    for jar in apache_kafka.glob("*.jar"):
        (libs / jar.name).symlink_to(jar)
    classes = place / "classes"
    source = TESTS / "interop" / "java" / "ExamplePolicies.java"
    subprocess.run(["javac", "-cp", f"{libs}/*", "-d", str(classes), str(source)], check=True, timeout=300)
    with zipfile.ZipFile(libs / "policies.jar", "w") as packed:
        for compiled in classes.glob("*.class"):
            packed.write(compiled, compiled.name)
    settings = {
        "create.topic.policy.class.name": "ExamplePolicies$Create",
        "alter.config.policy.class.name": "ExamplePolicies$Alter",
    }
    with (
        start_zookeeper(place / "zookeeper") as zookeeper,
        start_kafka_with_zookeeper(place / "kafka", zookeeper, properties=settings, libs=libs) as kafka,
    ):
        yield kafka.port
