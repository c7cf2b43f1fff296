"""Fetching ahead: sessions, room, leaders that move, replicas nearby, errors of each kind."""

from __future__ import annotations

import pytest

from braidlog.client.errors import NoConnection
from braidlog.core.protocol_errors import (
    FetchSessionIdNotFoundError,
)
from braidlog.wire.generated.fetch import FetchRequest
from support.fake_read_cluster import P0, P1, ReadSideScene


async def scene_at_start(**given: object) -> ReadSideScene:
    return ReadSideScene({"auto.offset.reset": "earliest", **given})


async def test_everything_is_read_once_and_in_order() -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end, scene.cluster.logs[P1].end = 35, 12
    await scene.assign(P0, P1)
    found = await scene.offsets()
    assert [offset for partition, offset in found if partition == 0] == list(range(35))
    assert [offset for partition, offset in found if partition == 1] == list(range(12))
    await scene.close()


async def test_what_comes_later_is_fetched_without_a_poll() -> None:
    scene = await scene_at_start()
    await scene.assign(P0)
    assert scene.cluster.parked == 1
    scene.cluster.logs[P0].end = 3
    await scene.news()
    assert scene.cluster.parked == 2
    assert scene.poll() == [(0, 0), (0, 1), (0, 2)]
    await scene.close()


async def test_requests_after_the_first_carry_changes_only() -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 10
    await scene.assign(P0, P1)
    first, second = scene.asked(FetchRequest)[:2]
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert [each.partition for each in first.topics[0].partitions] == [0, 1]
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert [(each.partition, each.fetch_offset) for each in second.topics[0].partitions] == [(0, 10)]
    await scene.close()


async def test_two_slices_of_a_partition_wait_at_most() -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 100
    await scene.assign(P0)
    assert len(scene.fetch_buffer.incoming) == 2
    assert len(scene.asked(FetchRequest)) == 2
    assert len(scene.poll(10)) == 10
    await scene.settle()
    assert len(scene.asked(FetchRequest)) == 3
    await scene.close()


async def test_what_waits_is_bounded_in_bytes() -> None:
    scene = await scene_at_start(**{"fetch.max.bytes": 1})
    scene.cluster.logs[P0].end = 100
    await scene.assign(P0)
    assert len(scene.asked(FetchRequest)) == 1
    scene.poll()
    await scene.settle()
    assert len(scene.asked(FetchRequest)) == 2
    await scene.close()


async def test_a_quiet_partition_does_not_hold_up_a_busy_one() -> None:
    """A broker is not asked for the quiet one alone while the busy one has no room."""
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 100
    await scene.assign(P0, P1)
    assert scene.cluster.parked == 0
    assert len(await scene.offsets(20)) == 100
    await scene.close()


async def test_who_was_served_last_is_asked_for_last() -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 10
    await scene.assign(P0, P1)
    scene.cluster.session_errors = [FetchSessionIdNotFoundError.code]
    scene.cluster.logs[P0].end = 12
    await scene.news()
    await scene.offsets(2)
    full = [each for each in scene.asked(FetchRequest) if each.session_epoch == 0]
    assert [[one.partition for one in each.topics[0].partitions] for each in full] == [[0, 1], [1, 0]]
    await scene.close()


async def test_paused_partitions_are_forgotten() -> None:
    scene = await scene_at_start()
    await scene.assign(P0, P1)
    scene.subscription.state(P0).is_paused = True
    scene.cluster.logs[P1].end = 1
    await scene.news()
    last = scene.asked(FetchRequest)[-1]
    assert last.forgotten_topics_data[0].partitions == [0]
    await scene.close()


async def test_topics_by_name_where_brokers_are_older() -> None:
    scene = await scene_at_start()
    scene.cluster.ready(1).newest = 12
    scene.cluster.logs[P0].end = 3
    await scene.assign(P0)
    assert scene.poll() == [(0, 0), (0, 1), (0, 2)]
    assert {version for _, version, request in scene.cluster.requests if isinstance(request, FetchRequest)} == {12}
    await scene.close()


async def test_a_session_that_the_broker_lost() -> None:
    scene = await scene_at_start()
    await scene.assign(P0)
    scene.cluster.session_errors = [FetchSessionIdNotFoundError.code]
    scene.cluster.logs[P0].end = 3
    await scene.news()
    await scene.settle()
    assert scene.poll() == [(0, 0), (0, 1), (0, 2)]
    scene.cluster.logs[P0].end = 5
    await scene.news()
    assert scene.poll() == [(0, 3), (0, 4)]
    await scene.close()


async def test_a_lost_connection_loses_and_doubles_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 30
    await scene.assign(P0)
    assert len(scene.poll(10)) == 10
    scene.cluster.lost = [NoConnection("cut"), NoConnection("cut again")]
    assert [offset for _, offset in await scene.offsets()] == list(range(10, 30))
    assert scene.cluster.updates > 0
    # What recovers at once is not logged.
    assert caplog.text == ""
    await scene.close()


async def test_a_connection_that_ends_under_a_parked_fetch_was_good_until_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = await scene_at_start()
    now = 100.0
    scene.cluster.problems.now = lambda: now
    await scene.assign(P0)
    assert scene.cluster.parked == 1
    now = 105.0
    scene.cluster.lost = [NoConnection("cut")]
    scene.cluster.logs[P0].end = 1
    await scene.news()
    assert await scene.offsets() == [(0, 0)]
    assert caplog.text == ""
    await scene.close()


async def test_a_replica_nearby_is_used_until_it_fails() -> None:
    scene = await scene_at_start(**{"client.rack": "here"})
    scene.cluster.preferred[P0] = 2
    scene.cluster.logs[P0].end = 5
    await scene.assign(P0)
    assert len(await scene.offsets()) == 5
    fetches = [(node, request) for node, _, request in scene.cluster.requests if isinstance(request, FetchRequest)]
    assert [node for node, _ in fetches][:2] == [1, 2]
    assert fetches[0][1].rack_id == "here"
    # The follower does not have the position: the leader is asked, and nothing is reset.
    scene.cluster.logs[P0].refusals = [1]
    scene.cluster.preferred.clear()
    scene.cluster.logs[P0].end = 7
    await scene.news()
    assert [offset for _, offset in await scene.offsets()] == [5, 6]
    assert scene.cluster.requests[-1][0] == 1
    await scene.close()


async def test_a_replica_nearby_is_forgotten_after_a_while() -> None:
    scene = await scene_at_start(**{"metadata.max.age.ms": 1000})
    scene.cluster.preferred[P0] = 2
    scene.cluster.logs[P0].end = 5
    await scene.assign(P0)
    assert len(await scene.offsets()) == 5
    scene.clock.advance(2.0)
    scene.cluster.preferred.clear()
    scene.cluster.logs[P0].end = 6
    await scene.news()
    assert [offset for _, offset in await scene.offsets()] == [5]
    assert scene.cluster.requests[-1][0] == 1
    await scene.close()


async def test_the_end_closes_the_session() -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 1
    await scene.assign(P0)
    await scene.tasks.close()
    scene.cluster.news.set()
    await scene.fetcher.close()
    last = scene.asked(FetchRequest)[-1]
    assert (last.session_id, last.session_epoch, last.max_wait_ms) == (77, -1, 0)
