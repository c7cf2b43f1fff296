"""Where reading starts: committed offsets, resets by policy, and checks after a change of leader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.partition_state import AWAITING_RESET, FETCHING, PartitionState
from braidlog.client.errors import NoOffsetError
from braidlog.core.protocol_errors import (
    TopicAuthorizationFailedError,
)
from braidlog.core.types import TopicPartition
from support.fake_read_cluster import IDS, P0, P1, ReadSideScene


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
