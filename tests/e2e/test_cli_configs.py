from __future__ import annotations

from typing import Any


def by_setting(outcome: Any) -> dict[str, Any]:
    return {row["setting"]: row for row in outcome.succeeded().json}


def test_settings_of_a_topic(cli: Any, topic: str) -> None:
    of_topic = ("--topic", topic)
    cli("topics", "create", topic).succeeded()
    assert by_setting(cli("configs", "describe", *of_topic, "--output", "json")) == {}
    every = by_setting(cli("configs", "describe", *of_topic, "--all", "--docs", "--output", "json"))
    assert every["retention.ms"]["value"] == "604800000"
    assert every["retention.ms"]["source"] == "default"
    assert every["retention.ms"]["doc"]

    changed = cli(
        "configs", "alter", *of_topic, "--set", "retention.ms=1000", "--append", "cleanup.policy=compact"
    ).succeeded()
    assert changed.out == f"2 settings of topic {topic} changed\n"
    now = by_setting(cli("configs", "describe", *of_topic, "--output", "json"))
    assert {name: row["value"] for name, row in now.items()} == {
        "retention.ms": "1000",
        "cleanup.policy": "delete,compact",
    }
    assert now["retention.ms"]["source"] == "topic"
    assert "retention.ms=1000" in now["retention.ms"]["synonyms"]

    cli("configs", "alter", *of_topic, "--subtract", "cleanup.policy=delete", "--delete", "retention.ms").succeeded()
    table = cli("configs", "describe", *of_topic).succeeded().lines
    assert table == ["SETTING         VALUE    SOURCE  READ-ONLY", "cleanup.policy  compact  topic   no"]


def test_validate_only_changes_nothing(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    checked = cli(
        "configs", "alter", "--topic", topic, "--set", "retention.ms=5", "--validate-only", "--output", "json"
    ).succeeded()
    assert checked.json == {"of": f"topic {topic}", "settings": ["retention.ms"], "changed": False}
    assert by_setting(cli("configs", "describe", "--topic", topic, "--output", "json")) == {}


def test_settings_of_brokers(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    (described,) = cli("topics", "describe", topic, "--output", "json").succeeded().json
    broker = str(described["partitions"][0]["leader"])
    every = by_setting(cli("configs", "describe", "--broker", broker, "--all", "--output", "json"))
    assert every["log.cleaner.threads"]["source"] == "default"
    cli("configs", "alter", "--brokers", "--set", "log.cleaner.threads=2").succeeded()
    of_all = by_setting(cli("configs", "describe", "--brokers", "--output", "json"))
    assert of_all["log.cleaner.threads"]["value"] == "2"
    cli("configs", "alter", "--brokers", "--delete", "log.cleaner.threads").succeeded()


def test_settings_of_groups(cli: Any, topic: str) -> None:
    of_group = ("--group", topic)
    assert by_setting(cli("configs", "describe", *of_group, "--output", "json")) == {}
    every = by_setting(cli("configs", "describe", *of_group, "--all", "--output", "json"))
    assert {name: row["value"] for name, row in every.items()} == {
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
    }
    changed = cli("configs", "alter", *of_group, "--set", "consumer.session.timeout.ms=50000").succeeded()
    assert changed.out == f"1 setting of group {topic} changed\n"
    table = cli("configs", "describe", *of_group).succeeded().lines
    assert table[1:] == ["consumer.session.timeout.ms  50000  group   no"]
    cli("configs", "alter", *of_group, "--set", "consumer.session.timeout.ms=5").failed("[INVALID_CONFIG]")
    cli("configs", "alter", *of_group, "--delete", "consumer.session.timeout.ms").succeeded()
    assert by_setting(cli("configs", "describe", *of_group, "--output", "json")) == {}


def test_log_levels_of_a_broker(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    (described,) = cli("topics", "describe", topic, "--output", "json").succeeded().json
    loggers = ("--broker-loggers", str(described["partitions"][0]["leader"]))
    before = by_setting(cli("configs", "describe", *loggers, "--output", "json"))
    assert before["braidlog.controller"]["source"] == "logger"
    cli("configs", "alter", *loggers, "--set", "braidlog.controller=FATAL").succeeded()
    now = by_setting(cli("configs", "describe", *loggers, "--output", "json"))
    assert now["braidlog.controller"]["value"] == "FATAL"
    cli("configs", "alter", *loggers, "--delete", "braidlog.controller").succeeded()
    assert by_setting(cli("configs", "describe", *loggers, "--output", "json")) == before
    cli("configs", "alter", *loggers, "--set", "braidlog.controller=LOUD").failed("[INVALID_CONFIG]")
    cli("configs", "alter", *loggers, "--delete", "root").failed("[INVALID_REQUEST]")


def test_mistakes(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("configs", "alter", "--topic", topic).failed("nothing to change")
    cli("configs", "alter", "--topic", topic, "--set", "retention.ms").failed("give KEY=VALUE")
    cli("configs", "alter", "--topic", topic, "--set", "retention.ms=soon").failed("[INVALID_CONFIG]")
    cli("configs", "describe", "--topic", f"{topic}-missing").failed("[UNKNOWN_TOPIC_OR_PARTITION]")
    cli("configs", "describe", "--broker", "4711").failed("there is no broker 4711 in this cluster")
    cli("configs", "describe", "--broker", "one").failed("whole number", code=2)
    cli("configs", "describe").failed("one of the arguments", code=2)
