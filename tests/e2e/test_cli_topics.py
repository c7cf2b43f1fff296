from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.broker import Broker


def test_the_life_of_a_topic(cli: Any, topic: str) -> None:
    created = cli("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=60000").succeeded()
    assert created.out == f"topic {topic} created with 3 partitions\n"

    (row,) = (row for row in cli("topics", "list", "--output", "json").succeeded().json if row["topic"] == topic)
    assert row == {"topic": topic, "partitions": 3, "replication_factor": 1, "internal": False}
    assert any(line.split() == [topic, "3", "1", "no"] for line in cli("topics", "list").succeeded().lines)

    (described,) = cli("topics", "describe", topic, "--output", "json").succeeded().json
    assert described["config"] == {"retention.ms": "60000"}
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert all(each["isr"] == each["replicas"] == [each["leader"]] for each in described["partitions"])
    table = cli("topics", "describe", topic).succeeded().lines
    assert table[0] == f"topic {topic}  id {described['id']}  config retention.ms=60000"
    assert table[1].split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "STATES"]
    assert len(table) == 5

    altered = cli("topics", "alter", topic, "--partitions", "5", "--output", "json").succeeded()
    assert altered.json == {"topic": topic, "altered": True, "partitions": 5}
    cli("topics", "alter", topic, "--partitions", "2").failed("can only grow [INVALID_PARTITIONS]")

    assert cli("topics", "delete", topic, "--output", "json").succeeded().json == {"topic": topic, "deleted": True}
    cli("topics", "describe", topic).failed("[UNKNOWN_TOPIC_OR_PARTITION]")


def test_existing_and_missing_topics(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("topics", "create", topic).failed("[TOPIC_ALREADY_EXISTS]")
    again = cli("topics", "create", topic, "--if-not-exists", "--output", "json").succeeded()
    assert again.json == {"topic": topic, "created": False}
    missing = f"{topic}-missing"
    for verb in (("delete",), ("alter", "--partitions", "2"), ("describe",)):
        cli("topics", verb[0], missing, *verb[1:]).failed(missing)
        cli("topics", verb[0], missing, *verb[1:], "--if-exists").succeeded()
    # The one that is there goes even though the other is not.
    deleted = cli("topics", "delete", missing, topic).failed(missing)
    assert deleted.out == f"topic {topic} deleted\n"


def test_validate_only_creates_nothing(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, "--validate-only").succeeded()
    cli("topics", "describe", topic).failed(topic)


def test_explicit_replicas(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    (described,) = cli("topics", "describe", topic, "--output", "json").succeeded().json
    broker_id = described["partitions"][0]["leader"]
    other = f"{topic}-assigned"
    cli("topics", "create", other, "--replica-assignment", f"{broker_id},{broker_id}").succeeded()
    (described,) = cli("topics", "describe", other, "--output", "json").json
    assert [each["replicas"] for each in described["partitions"]] == [[broker_id], [broker_id]]
    cli("topics", "create", f"{topic}-x", "--replica-assignment", "1:a").failed("give broker ids as 1:2,2:3", code=2)
    both = ("--replica-assignment", "1", "--partitions", "2")
    cli("topics", "create", f"{topic}-x", *both).failed("leave out --partitions")


def test_names_that_collide_are_refused_with_a_warning(cli: Any, topic: str) -> None:
    base = topic.replace("_", "-").replace(".", "-")
    created = cli("topics", "create", f"{base}.a").succeeded()
    assert "metrics fold" in created.err
    refused = cli("topics", "create", f"{base}_a").failed(f"collides with {base}.a")
    assert "metrics fold" in refused.err


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("bad name",), "[INVALID_TOPIC_EXCEPTION]"),
        (("x", "--config", "no.such.setting=1"), "[INVALID_CONFIG]"),
        (("x", "--config", "retention.ms=soon"), "[INVALID_CONFIG]"),
        (("x", "--config", "retention.ms"), "give KEY=VALUE"),
        (("x", "--replication-factor", "5"), "[INVALID_REPLICATION_FACTOR]"),
    ],
)
def test_what_a_broker_refuses(cli: Any, words: tuple[str, ...], reported: str) -> None:
    cli("topics", "create", *words).failed(reported)


def test_exactly_one_action(cli: Any) -> None:
    cli("topics").failed("ACTION", code=2)
    cli("topics", "create", "delete", "x").failed("unrecognized arguments", code=2)


def test_no_broker(cli_of: Callable[[Broker | None], Any]) -> None:
    cli_of(None)("topics", "list", "--bootstrap", "127.0.0.1:1").failed("no broker answers at 127.0.0.1:1")
    cli_of(None)("topics", "list", "--bootstrap", "127.0.0.1:x").failed("is not HOST:PORT", code=2)


def test_replicas_without_a_look_at_racks(cli: Any, topic: str) -> None:
    created = cli("topics", "create", topic, "--partitions", "2", "--disable-rack-aware").succeeded()
    assert created.out == f"topic {topic} created with 2 partitions\n"
    cli("topics", "alter", topic, "--partitions", "3", "--disable-rack-aware").succeeded()
    (described,) = cli("topics", "describe", topic, "--output", "json").succeeded().json
    assert [len(each["replicas"]) for each in described["partitions"]] == [1, 1, 1]


def test_where_there_is_one_broker_nothing_moves(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    assert cli("reassign", "plan", "--topics", topic).succeeded().out == "nothing has to move\n"
    cli("reassign", "plan", "--topics", topic, "--brokers", "77").failed("broker 77 is not up")
    cli("elect").failed("say of what: TOPIC, TOPIC:0,1 or --all")
