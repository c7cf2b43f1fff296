from __future__ import annotations

import pytest

from braidlog.cli.checks.finding import OK, PROBLEM, WARNING
from braidlog.cli.checks.live_cluster import TopicSafety, check_partitions, check_safety
from braidlog.client.cluster_view import NO_EPOCH, PartitionView, TopicView
from support.findings import status


def topic(name: str, *partitions: tuple[int, list[int], list[int]]) -> TopicView:
    views = (
        PartitionView(index, leader, NO_EPOCH, tuple(replicas), tuple(isr), ())
        for index, (leader, replicas, isr) in enumerate(partitions)
    )
    return TopicView(name, bytes(16), 0, False, tuple(views))


def test_partitions_without_leader_or_behind() -> None:
    (sound,) = check_partitions([topic("a", (1, [1], [1]))])
    assert status(sound) == OK
    dead, behind = check_partitions([topic("a", (-1, [1], [1]), (1, [1, 2], [1]))])
    assert (status(dead), status(behind)) == (PROBLEM, WARNING)
    assert "a-0" in dead.text
    assert "a-1" in behind.text


@pytest.mark.parametrize(
    ("safety", "brokers", "statuses"),
    [
        ([TopicSafety("t", 1, 1, False)], 1, [OK, OK]),
        ([TopicSafety("t", 1, 2, False)], 1, [WARNING, OK]),
        ([TopicSafety("t", 3, 2, False)], 3, [OK, OK]),
        ([TopicSafety("t", 2, 2, False)], 3, [WARNING, OK, OK]),
        ([TopicSafety("t", 3, 1, False)], 3, [WARNING, OK]),
        ([TopicSafety("t", 1, 1, False)], 3, [WARNING, OK]),
        ([TopicSafety("t", 3, 2, True)], 3, [OK, WARNING]),
        ([], 1, [OK, OK]),
    ],
)
def test_what_survives(safety: list[TopicSafety], brokers: int, statuses: list[str]) -> None:
    assert [status(finding) for finding in check_safety(safety, brokers)] == statuses


def test_acks_all_that_is_seen_is_said() -> None:
    loose = [TopicSafety("t", 3, 1, False), TopicSafety("u", 3, 1, False)]
    found = check_safety(loose, 3, {"u", "v"})[0]
    assert status(found) == WARNING
    assert found.text.endswith("with the leader alone: t, u; producers use acks=all with u")
