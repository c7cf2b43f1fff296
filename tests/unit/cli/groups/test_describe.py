"""Rows of offsets and members, with a dash for what is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from braidlog.cli.groups.describe import offset_rows, show_members, show_state
from braidlog.client.admin.groups import GroupDescription, GroupMember, GroupState, GroupType
from braidlog.client.admin.lookup_strategies import CoordinatorNode
from braidlog.client.admin.records import ListedOffset
from braidlog.client.admin.results import Failure
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition

ORDERS = tuple(TopicPartition("orders", number) for number in range(4))
PLACE = CoordinatorNode(1, "broker", 9092)


def group(*members: GroupMember, protocol_type: str = "consumer") -> GroupDescription:
    return GroupDescription("g", GroupType.CLASSIC, protocol_type, GroupState.STABLE, "range", members, PLACE)


def member(name: str, assignment: tuple[TopicPartition, ...] | None, **more: Any) -> GroupMember:
    return replace(GroupMember(name, None, f"{name}-client", "/10.0.0.1", assignment), **more)


def ending(offset: int) -> ListedOffset:
    return ListedOffset(offset, -1, 0)


def test_rows_for_what_is_owned_or_committed() -> None:
    owner = member("m", ORDERS[:2])
    committed = {
        ORDERS[0]: OffsetAndMetadata(7, "note", 2),
        ORDERS[2]: OffsetAndMetadata(3),
        ORDERS[3]: OffsetAndMetadata(9),
    }
    ends: dict[TopicPartition, ListedOffset | Failure] = {
        ORDERS[0]: ending(10),
        ORDERS[1]: ending(5),
        ORDERS[2]: UnknownTopicOrPartitionError(),
        ORDERS[3]: ending(4),
    }
    rows = offset_rows(group(owner, member("idle", ())), committed, ends)
    columns = ("partition", "current_offset", "log_end_offset", "lag", "consumer_id")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (0, 7, 10, 3, "m"),
        (1, None, 5, None, "m"),
        (2, 3, None, None, None),
        # Committed beyond the end, as after a lost tail: the number says so.
        (3, 9, 4, -5, None),
    ]
    assert [(row["metadata"], row["leader_epoch"]) for row in rows[:2]] == [("note", 2), (None, None)]
    assert len({tuple(row) for row in rows}) == 1


def test_members_that_share_out_something_else_have_a_row() -> None:
    rows = offset_rows(group(member("w", None), protocol_type="connect"), {}, {})
    assert [(row["topic"], row["lag"], row["consumer_id"]) for row in rows] == [(None, None, "w")]


def test_columns_that_nobody_has_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    plain = group(member("m", ORDERS[:2]), member("idle", ()))
    show_members([plain], False, "table")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["g", "m", "/10.0.0.1", "m-client", "2"],
        ["g", "idle", "/10.0.0.1", "idle-client", "0"],
    ]
    moving = group(member("m", ORDERS[:1], instance_id="s", target=ORDERS[:2]))
    show_members([moving], True, "table")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        [
            *("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
            *("ASSIGNMENT", "TARGET-ASSIGNMENT"),
        ],
        ["g", "m", "s", "/10.0.0.1", "m-client", "1", "orders:0", "orders:0,1"],
    ]


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    show_members([group(member("m", ORDERS[:1]), member("w", None))], False, "json")
    first, second = json.loads(capsys.readouterr().out)
    assert first["assignment"] == [{"topic": "orders", "partition": 0}]
    assert (second["assignment"], second["partition_count"]) == (None, None)
    show_state([group()], "json")
    (state,) = json.loads(capsys.readouterr().out)
    assert state["coordinator"] == {"id": 1, "host": "broker", "port": 9092}
    assert (state["member_count"], state["assignment_strategy"]) == (0, "range")
