"""Where reading starts: committed offsets, resets by policy, and checks after a change of leader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.offsets.offset_for_leader_epoch import EpochEnd, TruncationCheck, check_truncation
from braidlog.client.consumer.partition_state import AWAITING_RESET, FETCHING, PartitionState
from braidlog.client.errors import LogTruncatedError, NoConnection, NoOffsetError
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.list_offsets import ListOffsetsRequest
from braidlog.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from support.fake_read_cluster import IDS, P0, P1, ReadSideScene


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 4), ("latest", 9)])
async def test_without_a_group_the_policy_says(policy: str, expected: int) -> None:
    scene = ReadSideScene({"auto.offset.reset": policy})
    scene.cluster.logs[P0].start, scene.cluster.logs[P0].end = 4, 9
    await scene.assign(P0)
    assert scene.position() == expected
    await scene.close()


async def test_by_duration_and_past_the_last_record() -> None:
    scene = ReadSideScene({"auto.offset.reset": "by_duration:PT1S"})
    wanted = scene.clock.wall_ms() - 1000
    scene.cluster.logs[P0].end = 9
    scene.cluster.logs[P0].times[wanted] = 6
    scene.cluster.logs[P1].end = 5
    await scene.assign(P0, P1)
    assert scene.position(P0) == 6
    # Nothing of the last second: what comes from now on.
    assert scene.position(P1) == 5
    await scene.close()


async def test_no_policy_is_raised_until_the_program_seeks() -> None:
    scene = ReadSideScene({"auto.offset.reset": "none"})
    scene.cluster.logs[P0].end = 3
    await scene.assign(P0)
    for _ in range(2):
        with pytest.raises(NoOffsetError, match=r"t-0: .*seek") as caught:
            scene.poll()
        assert caught.value.partition == P0
        await scene.settle()
    scene.subscription.state(P0).seek(1)
    scene.fetcher.schedule()
    await scene.settle()
    assert scene.poll() == [(0, 1), (0, 2)]
    await scene.close()


async def test_a_seek_right_after_the_assignment_counts() -> None:
    scene = ReadSideScene({"auto.offset.reset": "none"})
    scene.subscription.assign([P0])
    state = scene.subscription.state(P0)

    def states() -> Iterator[PartitionState]:
        yield state
        # The program's thread, while the engine's looks at what each partition waits for.
        state.seek(2)

    scene.positions.advance(states(), scene.clock.monotonic(), lambda at, now: None)
    assert scene.subscription.take_failure() is None
    assert (state.phase, state.position) == (FETCHING, 2)
    await scene.close()


async def test_committed_offsets_come_first() -> None:
    asked: list[list[TopicPartition]] = []

    async def committed(partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        asked.append(partitions)
        return {P0: OffsetAndMetadata(7, "", 3), P1: None}

    scene = ReadSideScene({"auto.offset.reset": "earliest"}, fetch_committed=committed)
    scene.cluster.logs[P0].end = 9
    await scene.assign(P0, P1)
    assert (scene.position(P0), scene.position(P1)) == (7, 0)
    assert asked == [[P0, P1]]
    await scene.close()


async def test_a_seek_while_the_group_is_asked_counts() -> None:
    async def committed(partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        scene.subscription.state(P0).seek(2)
        return {P0: OffsetAndMetadata(7)}

    scene = ReadSideScene(fetch_committed=committed)
    scene.cluster.logs[P0].end = 9
    await scene.assign(P0)
    assert scene.position(P0) == 2
    await scene.close()


async def test_what_the_group_refuses_is_raised() -> None:
    async def committed(partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        raise TopicAuthorizationFailedError("not authorized")

    scene = ReadSideScene(fetch_committed=committed)
    await scene.assign(P0)
    with pytest.raises(TopicAuthorizationFailedError):
        scene.poll()
    await scene.close()


async def test_resets_are_tried_again() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    log = scene.cluster.logs[P0]
    log.end = 2
    log.refusals = [NotLeaderOrFollowerError.code, LeaderNotAvailableError.code]
    scene.cluster.lost = [NoConnection("gone")]
    await scene.assign(P0)
    assert len(scene.asked(ListOffsetsRequest)) == 4
    assert scene.cluster.updates >= 3
    assert scene.position() == 0
    await scene.close()


async def moved(scene: ReadSideScene) -> None:
    """Some records are read, then another broker leads."""
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    assert scene.poll(5) == [(0, at) for at in range(5)]
    scene.cluster.epoch = 4
    scene.cluster.leaders[P0] = 2
    scene.fetcher.schedule()
    await scene.settle()


async def test_a_new_leader_that_has_what_was_read() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    await moved(scene)
    (question,) = scene.asked(OffsetForLeaderEpochRequest)
    (partition,) = question.topics[0].partitions
    assert (partition.leader_epoch, partition.current_leader_epoch) == (3, 4)
    assert scene.subscription.state(P0).phase == FETCHING
    assert await scene.offsets() == [(0, 5), (0, 6), (0, 7)]
    await scene.close()


async def test_a_new_leader_whose_log_was_cut_goes_on_there() -> None:
    scene = ReadSideScene({"auto.offset.reset": "latest"})
    scene.cluster.logs[P0].epoch_end = (3, 2)
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    scene.subscription.state(P0).seek(0)
    await scene.news()
    assert scene.poll(5) == [(0, at) for at in range(5)]
    scene.cluster.epoch = 4
    scene.fetcher.schedule()
    await scene.settle()
    assert scene.position() == 2
    await scene.news()
    assert (await scene.offsets())[0] == (0, 2)
    await scene.close()


async def test_without_a_policy_a_cut_log_is_raised() -> None:
    scene = ReadSideScene({"auto.offset.reset": "none"})
    scene.cluster.logs[P0].end = 8
    scene.cluster.logs[P0].epoch_end = (3, 2)
    scene.subscription.assign([P0])
    scene.subscription.state(P0).seek(0)
    scene.fetcher.schedule()
    await scene.settle()
    assert len(scene.poll(5)) == 5
    scene.cluster.epoch = 4
    scene.fetcher.schedule()
    await scene.settle()
    with pytest.raises(LogTruncatedError, match=r"t-0 was cut below position 5 .*offset 2.*seek to 2") as caught:
        scene.poll()
    assert (caught.value.partition, caught.value.position, caught.value.diverging_offset) == (P0, 5, 2)
    assert scene.position() == 5
    await scene.close()


async def test_a_leader_that_knows_nothing_so_old_means_a_reset() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    scene.cluster.logs[P0].epoch_end = (-1, -1)
    await moved(scene)
    assert scene.position() == 0
    await scene.close()


async def test_checks_are_tried_again_and_left_out_where_brokers_are_too_old() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    assert len(scene.poll(5)) == 5
    scene.cluster.logs[P0].refusals = [FencedLeaderEpochError.code]
    scene.cluster.epoch = 4
    scene.fetcher.schedule()
    await scene.settle()
    assert len(scene.asked(OffsetForLeaderEpochRequest)) == 2
    scene.cluster.epoch_version = 2
    scene.cluster.epoch = 5
    scene.fetcher.schedule()
    await scene.settle()
    assert len(scene.asked(OffsetForLeaderEpochRequest)) == 2
    assert await scene.offsets() == [(0, 5), (0, 6), (0, 7)]
    await scene.close()


async def test_a_topic_made_anew_is_read_by_the_policy(caplog: pytest.LogCaptureFixture) -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    assert len(scene.poll(5)) == 5
    scene.cluster.topic_id = IDS[1]
    scene.cluster.epoch = 0
    scene.cluster.logs[P0].end = 2
    await scene.news()
    assert await scene.offsets() == [(0, 0), (0, 1)]
    assert "topic t was deleted and made again: position 5" in caplog.text
    await scene.close()


async def test_a_topic_made_anew_is_raised_where_there_is_no_policy() -> None:
    scene = ReadSideScene({"auto.offset.reset": "none"})
    scene.cluster.logs[P0].end = 8
    scene.subscription.assign([P0])
    scene.subscription.state(P0).seek(0)
    scene.fetcher.schedule()
    await scene.settle()
    scene.poll(5)
    scene.cluster.topic_id = IDS[1]
    scene.fetcher.schedule()
    await scene.settle()
    with pytest.raises(NoOffsetError, match="deleted"):
        scene.poll()
    await scene.close()


async def test_a_seek_while_a_reset_is_under_way_counts() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    scene.cluster.logs[P0].end = 8
    scene.subscription.assign([P0])
    state = scene.subscription.state(P0)
    state.request_reset(-2)
    scene.fetcher.advance()
    assert state.phase == AWAITING_RESET
    state.seek(6)
    await scene.settle()
    assert scene.poll() == [(0, 6), (0, 7)]
    await scene.close()


@pytest.mark.parametrize(
    ("position", "answer", "result"),
    [
        (5, EpochEnd(3, 5), TruncationCheck(False)),
        (5, EpochEnd(3, 9), TruncationCheck(False)),
        (5, EpochEnd(2, 4), TruncationCheck(True, 4, 2)),
        (5, EpochEnd(-1, -1), TruncationCheck(True)),
    ],
)
def test_truncation_checks(position: int, answer: EpochEnd, result: TruncationCheck) -> None:
    assert check_truncation(position, answer) == result
