"""The same requests to Apache Kafka 3.9 and to us: every setting's name, default, type, source and synonyms."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.config.definitions.braidlog import DIFFERENCES
from braidlog.wire.generated import alter_configs, incremental_alter_configs
from braidlog.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from braidlog.wire.message import Message
from support.oracle import Pair, Side
from support.raw import as_plain, versions_of

pytestmark = pytest.mark.peer

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

# Settings whose value says where and as what this process runs. A KRaft node names its roles, its quorum and
# its listeners; we are started as a broker with an id.
OF_THE_NODE = {
    "advertised.listeners",
    "broker.id",
    "broker.id.generation.enable",
    "controller.listener.names",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "process.roles",
    "zookeeper.connect",
}


def describe(side: Side, version: int, kind: int, name: str, **flags: bool) -> dict[str, dict[str, Any]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer: Any = side.ask("DescribeConfigs", version, DescribeConfigsRequest(resources=[resource], **flags))
    assert answer.results[0].error_code == 0, answer.results[0].error_message
    return {entry.name: as_plain(entry) for entry in answer.results[0].configs}


def differences(theirs: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]], ignored: set[str]) -> list[str]:
    """One line for each setting that is described otherwise here."""
    lines = []
    for name, expected in sorted(theirs.items()):
        if name in ignored:
            continue
        if name not in ours:
            lines.append(f"{name}: missing")
            continue
        lines.extend(
            f"{name}.{field}: Kafka {value!r}, here {ours[name][field]!r}"
            for field, value in expected.items()
            if field != "documentation" and ours[name][field] != value
        )
    lines.extend(
        f"{name}: unknown to Kafka"
        for name in sorted(set(ours) - set(theirs) - ignored)
        if not name.startswith("braidlog.")
    )
    return lines


@pytest.mark.parametrize("version", versions_of("DescribeConfigs"))
def test_topic_configs(pair: Pair, version: int) -> None:
    name = f"configs-{version}"
    pair.create(name, retention_ms="7654321", cleanup_policy="compact")
    flags = {"include_synonyms": True} if version >= 1 else {}
    theirs, ours = (describe(side, version, TOPIC, name, **flags) for side in pair.sides)
    assert "\n".join(differences(theirs, ours, set())) == ""


@pytest.mark.parametrize("version", versions_of("DescribeConfigs"))
def test_broker_configs(pair: Pair, version: int) -> None:
    flags = {"include_synonyms": True} if version >= 1 else {}
    theirs, ours = (describe(side, version, BROKER, "1", **flags) for side in pair.sides)
    assert "\n".join(differences(theirs, ours, OF_THE_NODE | DIFFERENCES.keys())) == ""


def test_every_setting_has_documentation(pair: Pair) -> None:
    for kind, name in ((TOPIC, "documented"), (BROKER, "1")):
        if kind == TOPIC:
            pair.create(name)
        theirs, ours = (describe(side, 4, kind, name, include_documentation=True) for side in pair.sides)
        undocumented = [
            key
            for key, entry in ours.items()
            if not entry["documentation"] and theirs.get(key, {}).get("documentation")
        ]
        assert not undocumented


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TOPIC, "no-such-topic"),
        (TOPIC, "not a name"),
        (TOPIC, ""),
        (BROKER, "99"),
        (BROKER, "x"),
        (BROKER_LOGGER, "99"),
        (BROKER_LOGGER, "x"),
        (BROKER_LOGGER, ""),
        (77, "x"),
    ],
)
def test_describing_what_is_not_there(pair: Pair, kind: int, name: str) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    pair.compare("DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource]))


def test_describing_chosen_keys(pair: Pair) -> None:
    pair.create("chosen")
    keys = ["retention.ms", "no.such.setting"]
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="chosen", configuration_keys=keys)
    pair.compare("DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource]))


INCREMENTS: list[tuple[str, int, str, list[tuple[str, int, str | None]]]] = [
    ("set", TOPIC, "there", [("retention.ms", SET, "1000")]),
    ("not a number", TOPIC, "there", [("retention.ms", SET, "soon")]),
    ("too small", TOPIC, "there", [("segment.bytes", SET, "1")]),
    ("no such setting", TOPIC, "there", [("no.such.setting", SET, "1")]),
    ("null value", TOPIC, "there", [("retention.ms", SET, None)]),
    ("delete", TOPIC, "there", [("retention.ms", DELETE, None)]),
    ("delete unset", TOPIC, "there", [("flush.ms", DELETE, None)]),
    ("append", TOPIC, "there", [("cleanup.policy", APPEND, "compact")]),
    ("append a wrong one", TOPIC, "there", [("cleanup.policy", APPEND, "shred")]),
    ("subtract", TOPIC, "there", [("cleanup.policy", SUBTRACT, "compact")]),
    ("append to a number", TOPIC, "there", [("retention.ms", APPEND, "1")]),
    ("twice", TOPIC, "there", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
    ("no such topic", TOPIC, "not-there", [("retention.ms", SET, "1")]),
    ("broker, dynamic", BROKER, "1", [("log.cleaner.threads", SET, "2")]),
    ("broker, back", BROKER, "1", [("log.cleaner.threads", DELETE, None)]),
    ("broker, fixed", BROKER, "1", [("log.dirs", SET, "/x")]),
    ("broker, per cluster only", BROKER, "", [("log.retention.ms", SET, "5000000")]),
    ("broker, per cluster back", BROKER, "", [("log.retention.ms", DELETE, None)]),
    ("broker, wrong value", BROKER, "1", [("log.cleaner.threads", SET, "many")]),
    ("broker, another one", BROKER, "99", [("log.cleaner.threads", SET, "2")]),
    ("broker, no number", BROKER, "x", [("log.cleaner.threads", SET, "2")]),
]


@pytest.mark.parametrize("case", INCREMENTS, ids=lambda case: case[0].replace(" ", "-"))
@pytest.mark.parametrize("version", versions_of("IncrementalAlterConfigs"))
def test_incremental_changes(
    pair: Pair, version: int, case: tuple[str, int, str, list[tuple[str, int, str | None]]]
) -> None:
    if "there" not in pair.ours.topic_ids:
        pair.create("there")
    _, kind, name, changes = case
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

    for dry in (True, False):
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)
        pair.compare("IncrementalAlterConfigs", version, request)


# Of the loggers there are the same in both: the root, and one that is named for each.
LOGGER = "a logger of its own"
LEVELS: list[tuple[str, str, list[tuple[str, int, str | None]]]] = [
    ("set", "1", [(LOGGER, SET, "DEBUG")]),
    ("set again", "1", [(LOGGER, SET, "FATAL")]),
    ("delete", "1", [(LOGGER, DELETE, None)]),
    ("delete twice", "1", [(LOGGER, DELETE, None)]),
    ("root", "1", [("root", SET, "WARN")]),
    ("root back", "1", [("root", SET, "INFO")]),
    ("no root", "1", [("root", DELETE, None)]),
    ("lower case", "1", [(LOGGER, SET, "debug")]),
    ("no level", "1", [(LOGGER, SET, "OFF")]),
    ("empty", "1", [(LOGGER, SET, "")]),
    ("null", "1", [(LOGGER, SET, None)]),
    ("append", "1", [(LOGGER, APPEND, "DEBUG")]),
    ("subtract", "1", [(LOGGER, SUBTRACT, "DEBUG")]),
    ("twice", "1", [(LOGGER, SET, "WARN"), (LOGGER, SET, "INFO")]),
    ("one of two", "1", [(LOGGER, SET, "WARN"), ("no.such", SET, "INFO")]),
    ("no such logger", "1", [("no.such", SET, "INFO")]),
    ("delete no such logger", "1", [("no.such", DELETE, None)]),
    ("no name", "1", [("", SET, "INFO")]),
    ("nothing", "1", []),
    ("another broker", "2", [(LOGGER, SET, "INFO")]),
    ("no number", "x", [(LOGGER, SET, "INFO")]),
    ("no broker", "", [(LOGGER, SET, "INFO")]),
]


def own_logger(side: Side) -> str:
    return "kafka.server.KafkaApis" if side.broker.is_kafka else "braidlog.dispatch"


def level_of(side: Side) -> dict[str, Any]:
    described = describe(side, 4, BROKER_LOGGER, "1", include_synonyms=True)
    wanted = {LOGGER: described[own_logger(side)], "root": described["root"]}
    return {
        name: {key: value for key, value in entry.items() if key not in ("name", "documentation")}
        for name, entry in wanted.items()
    }


@pytest.mark.parametrize("case", LEVELS, ids=lambda case: case[0].replace(" ", "-"))
def test_log_levels(pair: Pair, case: tuple[str, str, list[tuple[str, int, str | None]]]) -> None:
    _, name, changes = case
    assert level_of(pair.kafka) == level_of(pair.ours)
    for dry in (True, False):

        def request(side: Side, dry: bool = dry) -> Message:
            configs = [
                incremental_alter_configs.AlterableConfig(
                    name=own_logger(side) if key == LOGGER else key, config_operation=operation, value=value
                )
                for key, operation, value in changes
            ]
            resource = incremental_alter_configs.AlterConfigsResource(
                resource_type=BROKER_LOGGER, resource_name=name, configs=configs
            )
            return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry)

        pair.compare("IncrementalAlterConfigs", 1, request)
        assert level_of(pair.kafka) == level_of(pair.ours)


def test_log_levels_do_not_change_as_a_whole(pair: Pair) -> None:
    configs = [alter_configs.AlterableConfig(name="root", value="DEBUG")]
    resource = alter_configs.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="1", configs=configs)
    pair.compare("AlterConfigs", 2, alter_configs.AlterConfigsRequest(resources=[resource]))


@pytest.mark.parametrize("version", versions_of("AlterConfigs"))
def test_whole_changes(pair: Pair, version: int) -> None:
    name = f"whole-{version}"
    pair.create(name, retention_ms="1111111")
    for resource_name, key, value in (
        (name, "flush.ms", "1234"),
        (name, "flush.ms", "x"),
        (name, "no.such", "1"),
        ("not-there", "flush.ms", "1"),
    ):
        configs = [alter_configs.AlterableConfig(name=key, value=value)]
        resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=resource_name, configs=configs)
        pair.compare("AlterConfigs", version, alter_configs.AlterConfigsRequest(resources=[resource]))
