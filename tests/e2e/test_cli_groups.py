from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.peers.kafka import run_tool

from support.broker import Broker, StartBroker
from support.confluent import create_topic
from support.eventually import eventually
from support.group_setup import commit, fill, members, newer_member, worker

COLUMNS = [
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
    *("CONSUMER-ID", "HOST", "CLIENT-ID"),
]


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    """A topic with 10, 5 and no records in its three partitions."""
    create_topic(broker.bootstrap, topic, 3)
    fill(broker.bootstrap, topic, {0: 10, 1: 5})
    return topic


def offsets(cli: Any, group: str) -> dict[int, int]:
    rows = cli("groups", "describe", group, "--output", "json").succeeded().json
    return {row["partition"]: row["current_offset"] for row in rows}


def test_a_group_that_only_commits(cli: Any, broker: Broker, filled: str) -> None:
    group = f"{filled}-simple"
    commit(broker.bootstrap, group, filled, {0: 4, 2: 0}, metadata="by hand")

    (listed,) = (row for row in cli("groups", "list", "--output", "json").succeeded().json if row["group"] == group)
    assert (listed["type"], listed["state"], listed["protocol"]) == ("classic", "Empty", None)

    described = cli("groups", "describe", group).succeeded()
    assert [line.split() for line in described.lines] == [
        COLUMNS,
        [group, filled, "0", "4", "10", "6", "-", "-", "-"],
        [group, filled, "2", "0", "0", "0", "-", "-", "-"],
    ]
    assert described.err == f"braidlog: group {group} has no active members\n"
    first, _ = cli("groups", "describe", group, "--output", "json").succeeded().json
    assert (first["lag"], first["consumer_id"]) == (6, None)
    assert first["metadata"].rstrip("\0") == "by hand"  # the client sends the end of its C string with it

    (state,) = cli("groups", "describe", group, "--state", "--output", "json").succeeded().json
    assert (state["state"], state["member_count"], state["coordinator"]["host"]) == ("Empty", 0, "127.0.0.1")
    assert cli("groups", "describe", group, "--members", "--output", "json").succeeded().json == []

    assert cli("groups", "delete", group).succeeded().out == f"group {group} deleted\n"
    cli("groups", "describe", group).failed("it does not exist; `braidlog groups list` shows what does")


def test_a_group_with_members(cli: Any, broker: Broker, filled: str) -> None:
    group = f"{filled}-group"
    clients = {"client.one", "client.two"}
    strategy = "roundrobin"
    with members(broker.bootstrap, group, filled, sorted(clients), partition_assignment_strategy=strategy) as (
        first,
        _,
    ):
        message = None
        while message is None or message.error():
            message = first.poll(1.0)
        first.commit(message, asynchronous=False)

        rows = cli("groups", "describe", group, "--output", "json").succeeded().json
        assert [row["partition"] for row in rows] == [0, 1, 2]
        assert {row["client_id"] for row in rows} == clients
        assert all(row["host"] and row["consumer_id"].startswith(row["client_id"]) for row in rows)
        (read,) = (row for row in rows if row["current_offset"] is not None)
        assert (read["partition"], read["current_offset"]) == (message.partition(), 1)
        assert read["lag"] == read["log_end_offset"] - 1
        table = cli("groups", "describe", group).succeeded()
        assert table.err == ""
        assert [line.split()[3:6] for line in table.lines[1:] if line.split()[2] != str(message.partition())] == [
            ["-", str(row["log_end_offset"]), "-"] for row in rows if row is not read
        ]

        shown = cli("groups", "describe", group, "--members", "--verbose").succeeded().lines
        assert shown[0].split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
        assert {line.split()[3] for line in shown[1:]} == clients
        assert sorted(line.split()[5].removeprefix(f"{filled}:") for line in shown[1:]) == ["0,2", "1"]

        header, state = cli("groups", "describe", group, "--state").succeeded().lines
        assert header.startswith("GROUP")
        assert "COORDINATOR (ID)" in header
        assert "#MEMBERS" in header
        assert state.split()[-4:] == [strategy, "Stable", "2", "classic"]
        assert group in cli("groups", "list", "--state", "stable", "--type", "classic").succeeded().out
        assert group not in cli("groups", "list", "--state", "Empty,Dead").succeeded().out

        reset = ("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
        assert cli(*reset).failed(f"group {group} has 2 active members (state Stable)").out == ""
        assert "stop them first" in cli(*reset).err
        cli("groups", "delete", group).failed("[NON_EMPTY_GROUP]")
        cli("groups", "delete", group, "--topic", filled).failed("[GROUP_SUBSCRIBED_TO_TOPIC]")
    eventually(lambda: group in cli("groups", "list", "--state", "empty").succeeded().out)
    assert offsets(cli, group) == {message.partition(): 1}
    cli(*reset).succeeded()
    assert offsets(cli, group) == {message.partition(): 0}


def test_a_group_of_the_newer_protocol(
    start_broker: StartBroker, cli_of: Callable[[Broker | None], Any], topic: str
) -> None:
    broker = start_broker({"group.coordinator.rebalance.protocols": "classic,consumer"})
    create_topic(broker.bootstrap, topic, 3)
    fill(broker.bootstrap, topic, {0: 10, 1: 5})
    cli = cli_of(broker)
    group = f"{topic}-newer"
    try:
        with newer_member(broker.bootstrap, group, topic) as member_id:
            (listed,) = cli("groups", "list", "--type", "consumer", "--output", "json").succeeded().json
            assert (listed["group"], listed["type"], listed["protocol"]) == (group, "consumer", "consumer")
            rows = cli("groups", "describe", group, "--output", "json").succeeded().json
            assert [(row["partition"], row["consumer_id"]) for row in rows] == [(n, member_id) for n in range(3)]
            (member,) = cli("groups", "describe", group, "--members", "--output", "json").succeeded().json
            assert [each["partition"] for each in member["assignment"]] == [0, 1, 2]
            assert member["target_assignment"] == member["assignment"]
            (state,) = cli("groups", "describe", group, "--state", "--output", "json").succeeded().json
            assert (state["type"], state["state"], state["assignment_strategy"]) == ("consumer", "Stable", "uniform")
            reset = ("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
            cli(*reset).failed(f"group {group} has 1 active member (state Stable)")
        cli(*reset).succeeded()
        assert offsets(cli, group) == {0: 10, 1: 5, 2: 0}
    except LookupError as missing:
        pytest.skip(str(missing))


def test_a_group_of_something_else(cli: Any, broker: Broker, topic: str) -> None:
    with worker(broker.bootstrap, topic) as member_id:
        described = cli("groups", "describe", topic).succeeded()
        assert [line.split() for line in described.lines] == [
            COLUMNS,
            [topic, "-", "-", "-", "-", "-", member_id, *described.lines[1].split()[7:]],
        ]
        assert f"group {topic} is of type connect" in described.err
        (member,) = cli("groups", "describe", topic, "--members", "--output", "json").succeeded().json
        assert (member["consumer_id"], member["assignment"]) == (member_id, None)
        (listed,) = (row for row in cli("groups", "list", "--output", "json").json if row["group"] == topic)
        assert listed["protocol"] == "connect"


def test_reset_shows_the_plan_and_only_then_does_it(cli: Any, broker: Broker, filled: str) -> None:
    group = f"{filled}-reset"
    commit(broker.bootstrap, group, filled, {0: 4})
    words = ("groups", "reset-offsets", group)

    plan = cli(*words, "--topic", filled, "--to-offset", "7").succeeded()
    assert [line.split() for line in plan.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        [group, filled, "0", "4", "7"],
        [group, filled, "1", "-", "5"],
        [group, filled, "2", "-", "0"],
    ]
    assert f"braidlog: {filled}-1 ends at offset 5: it is used instead of 7" in plan.err.splitlines()
    assert plan.err.splitlines()[-1] == "braidlog: nothing was changed; --execute does it"
    assert offsets(cli, group) == {0: 4}

    done = cli(*words, "--topic", f"{filled}:0,1", "--to-latest", "--execute", "--output", "json").succeeded()
    changes = [(row["partition"], row["current_offset"], row["new_offset"]) for row in done.json]
    assert changes == [(0, 4, 10), (1, None, 5)]
    assert done.err == ""
    assert offsets(cli, group) == {0: 10, 1: 5}

    shifted = cli(*words, "--all-topics", "--shift-by", "-6", "--execute").succeeded()
    assert f"{filled}-1 starts at offset 0: it is used instead of -1" in shifted.err
    assert offsets(cli, group) == {0: 4, 1: 0}
    cli(*words, "--topic", filled, "--shift-by", "1").failed("has committed nothing for")

    cli(*words, "--topic", filled, "--by-duration", "P1D", "--execute").succeeded()
    assert offsets(cli, group) == {0: 0, 1: 0, 2: 0}
    late = cli(*words, "--topic", filled, "--to-datetime", "2200-01-01T00:00:00Z", "--execute").succeeded()
    assert "the time meant is 2200-01-01T00:00:00.000+00:00" in late.err
    assert offsets(cli, group) == {0: 10, 1: 5, 2: 0}
    cli(*words, "--all-topics", "--to-earliest", "--dry-run").succeeded()
    assert offsets(cli, group) == {0: 10, 1: 5, 2: 0}


def test_saving_and_restoring_offsets(cli: Any, broker: Broker, filled: str, tmp_path: Path) -> None:
    one, other = f"{filled}-one", f"{filled}-other"
    commit(broker.bootstrap, one, filled, {0: 3, 1: 2})
    commit(broker.bootstrap, other, filled, {0: 9})
    saved = tmp_path / "saved.csv"
    exported = cli("groups", "reset-offsets", one, "--all-topics", "--to-current", "--export").succeeded().out
    assert exported == f"{filled},0,3\n{filled},1,2\n"
    saved.write_text(exported)
    cli("groups", "reset-offsets", one, "--all-topics", "--to-latest", "--execute").succeeded()
    cli("groups", "reset-offsets", one, "--from-file", str(saved), "--execute").succeeded()
    assert offsets(cli, one) == {0: 3, 1: 2}

    both = cli("groups", "reset-offsets", one, other, "--all-topics", "--to-current", "--export").succeeded().out
    assert both == f"{one},{filled},0,3\n{one},{filled},1,2\n{other},{filled},0,9\n"
    changed = both.replace(",9", ",1").replace(",3", ",5")
    cli("groups", "reset-offsets", "--from-file", "-", "--execute", stdin=changed).succeeded()
    assert offsets(cli, one) == {0: 5, 1: 2}
    assert offsets(cli, other) == {0: 1}

    lines = cli("groups", "describe", one, other).succeeded().lines
    assert [line.split()[0] for line in lines[1:]] == [one, one, other]
    assert one in cli("groups", "describe", "--all-groups").succeeded().out
    assert {one, other} <= set(cli("completion", "groups").succeeded().lines)

    cli("groups", "reset-offsets", other, "--from-file", "-", stdin=both).failed(f"lines for group {one}, which")
    cli("groups", "reset-offsets", one, other, "--from-file", str(saved)).failed("lines without a group are for one")
    cli("groups", "reset-offsets", one, "--from-file", "-", stdin="a,b\n").failed("standard input, line 1: 2 columns")
    cli("groups", "reset-offsets", one, "--from-file", "-", stdin="a,0,-1\n").failed("line 1: '-1' is not an offset")
    cli("groups", "reset-offsets", one, "--from-file", str(tmp_path / "no")).failed("No such file")


def test_deleting_offsets_and_groups(cli: Any, broker: Broker, filled: str) -> None:
    group = f"{filled}-group"
    missing = f"{filled}-missing"
    commit(broker.bootstrap, group, filled, {0: 3, 1: 2})
    deleted = cli("groups", "delete", group, "--topic", f"{filled}:1", "--output", "json").succeeded()
    assert deleted.json == [{"group": group, "topic": filled, "partition": 1, "deleted": True}]
    assert offsets(cli, group) == {0: 3}
    cli("groups", "delete", missing, "--topic", filled).failed(f"group {missing}: it does not exist")
    cli("groups", "delete", missing, "--topic", filled, "--if-exists").succeeded()
    cli("groups", "delete", group, "--topic", f"{filled}:7").failed("has no partition 7; it has 3")

    # The one that is there goes even though the other is not.
    assert cli("groups", "delete", missing, group).failed("[GROUP_ID_NOT_FOUND]").out == f"group {group} deleted\n"
    again = cli("groups", "delete", group, "--if-exists", "--output", "json").succeeded()
    assert again.json == {"group": group, "deleted": False}
    cli("groups", "describe", group, "--if-exists").succeeded()


def test_offsets_of_a_topic_that_is_gone(cli: Any, broker: Broker, filled: str) -> None:
    group = f"{filled}-group"
    kept = f"{filled}-kept"
    create_topic(broker.bootstrap, kept, 1)
    commit(broker.bootstrap, group, filled, {0: 3})
    commit(broker.bootstrap, group, kept, {0: 0})
    cli("topics", "delete", filled).succeeded()

    def remaining() -> list[tuple[str, object]]:
        rows = cli("groups", "describe", group, "--output", "json").succeeded().json
        return [(row["topic"], row["log_end_offset"]) for row in rows]

    eventually(lambda: remaining() == [(kept, 0)])


@pytest.mark.parametrize(
    ("words", "reported", "code"),
    [
        (("describe",), "say which groups: name them, or use --all-groups", 1),
        (("describe", "x", "--all-groups"), "leave out the names", 1),
        (("describe", "x", "--members", "--state"), "not allowed with", 2),
        (("describe", ""), "has at least one character", 2),
        (("list", "--state", "asleep"), "'asleep' is no state of a group; choose from", 2),
        (("reset-offsets", "x", "--to-latest"), "say which partitions: --topic TOPIC", 1),
        (("reset-offsets", "x", "--all-topics"), "one of the arguments --to-earliest", 2),
        (("reset-offsets", "x", "--topic", "y", "--to-latest", "--to-current"), "not allowed with", 2),
        (("reset-offsets", "x", "--topic", "y:a", "--to-latest"), "'a' is not a partition", 2),
        (("reset-offsets", "x", "--topic", "y:4294967296", "--to-latest"), "up to 2147483647", 2),
        (("reset-offsets", "x", "--topic", "y", "--to-offset", "9223372036854775808"), "is not an offset", 2),
        (("reset-offsets", "x", "--topic", "y", "--shift-by", "1.5"), "whole number of offsets", 2),
        (("reset-offsets", "x", "--topic", "y", "--by-duration", "1h"), "ISO 8601 duration such as PT30M", 2),
        (("reset-offsets", "x", "--topic", "y", "--to-datetime", "99999999999999999999"), "is not a time", 2),
        (("reset-offsets", "x", "--topic", "no-such-topic", "--to-latest"), "[UNKNOWN_TOPIC_OR_PARTITION]", 1),
        (("reset-offsets", "x", "--all-topics", "--to-latest", "--export", "--output", "json"), "prints CSV", 1),
    ],
)
def test_what_cannot_be_asked(cli: Any, words: tuple[str, ...], reported: str, code: int) -> None:
    cli("groups", *words).failed(reported, code)


@pytest.mark.peer
def test_the_table_is_that_of_kafkas_own_tool(cli: Any, broker: Broker, filled: str, apache_kafka: object) -> None:
    group = f"{filled}-group"
    commit(broker.bootstrap, group, filled, {0: 4, 2: 0})
    with members(broker.bootstrap, group, filled, ["client.one", "client.two"]):
        ours = cli("groups", "describe", group).succeeded()
        tool = ("--bootstrap-server", broker.bootstrap, "--describe", "--group", group)
        theirs = run_tool("kafka-consumer-groups", tool)
        assert _table(ours.out) == _table(theirs.stdout)
        ours = cli("groups", "describe", group, "--members").succeeded()
        theirs = run_tool("kafka-consumer-groups", (*tool, "--members"))
        assert _table(ours.out) == _table(theirs.stdout)
    eventually(lambda: group in cli("groups", "list", "--state", "empty").succeeded().out)
    plan = cli("groups", "reset-offsets", group, "--all-topics", "--shift-by", "3", "--export").succeeded()
    reset = ("--bootstrap-server", broker.bootstrap, "--reset-offsets", "--group", group, "--all-topics")
    theirs = run_tool("kafka-consumer-groups", (*reset, "--shift-by", "3", "--export", "--dry-run"))
    assert sorted(csv.reader(plan.lines)) == sorted(filter(None, csv.reader(theirs.stdout.splitlines())))


def _table(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines() if line.strip())
