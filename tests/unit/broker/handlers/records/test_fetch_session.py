from __future__ import annotations

from random import Random

import pytest

from braidlog.broker.handlers.records.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchSessionCache,
    FetchTarget,
    TargetKey,
    name_partitions,
)
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from braidlog.wire.generated.fetch import FetchPartition


def target(topic: str, index: int, offset: int = 0) -> FetchTarget:
    return FetchTarget(topic, ZERO_ID, index, offset, 1000, -1, -1, -1)


def new_context(
    sessions: FetchSessionCache,
    session_id: int,
    epoch: int,
    targets: list[FetchTarget],
    forgotten: list[TargetKey] | None = None,
    uses_ids: bool = False,
    replica_id: int = -1,
    now: float = 0.0,
) -> FetchContext:
    """As for a request; `targets` are what it names."""
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        named = {each.key: each for each in targets}
        return sessions.new_context(session_id, epoch, named, uses_ids, replica_id, now)
    session = sessions.resume(session_id, epoch, uses_ids, replica_id)
    for each in targets:
        wanted = [FetchPartition(partition=each.index, fetch_offset=each.fetch_offset)]
        name_partitions(session.targets, each.topic, each.topic_id, wanted, session.follower)
    return sessions.next_context(session, forgotten or [], now)


@pytest.fixture
def sessions() -> FetchSessionCache:
    return FetchSessionCache(2, Random(1))


def test_without_a_session_everything_is_in_the_request(sessions: FetchSessionCache) -> None:
    got = new_context(sessions, 0, -1, [target("a", 0)])
    assert got.session_id == 0
    assert not got.incremental
    assert len(sessions) == 0


def test_a_session_remembers_what_later_requests_leave_out(sessions: FetchSessionCache) -> None:
    first = new_context(sessions, 0, 0, [target("a", 0), target("a", 1)])
    assert first.session_id > 0
    second = new_context(sessions, first.session_id, 1, [target("a", 1, 5)])
    assert second.incremental
    assert [(t.topic, t.index, t.fetch_offset) for t in second.targets] == [("a", 0, 0), ("a", 1, 5)]
    third = new_context(sessions, first.session_id, 2, [], [("a", ZERO_ID, 0)])
    assert [(t.topic, t.index) for t in third.targets] == [("a", 1)]


def test_epochs_must_follow_each_other(sessions: FetchSessionCache) -> None:
    first = new_context(sessions, 0, 0, [target("a", 0)])
    with pytest.raises(InvalidFetchSessionEpochError):
        new_context(sessions, first.session_id, 2, [])
    new_context(sessions, first.session_id, 1, [])
    with pytest.raises(InvalidFetchSessionEpochError):
        new_context(sessions, first.session_id, 1, [])


def test_an_unknown_session_is_named_as_such(sessions: FetchSessionCache) -> None:
    with pytest.raises(FetchSessionIdNotFoundError):
        new_context(sessions, 77, 1, [])


def test_names_and_ids_do_not_mix_in_a_session(sessions: FetchSessionCache) -> None:
    first = new_context(sessions, 0, 0, [target("a", 0)])
    with pytest.raises(FetchSessionTopicIdError):
        new_context(sessions, first.session_id, 1, [], uses_ids=True)


def test_epoch_minus_one_ends_a_session(sessions: FetchSessionCache) -> None:
    first = new_context(sessions, 0, 0, [target("a", 0)])
    new_context(sessions, first.session_id, -1, [target("a", 0)])
    assert len(sessions) == 0


def test_a_session_that_its_client_does_not_know_of_is_dropped(sessions: FetchSessionCache) -> None:
    context = new_context(sessions, 0, 0, [target("a", 0)])
    assert context.session is not None
    sessions.drop(context.session)
    sessions.drop(context.session)
    assert len(sessions) == 0


def test_a_full_cache_serves_without_a_session(sessions: FetchSessionCache) -> None:
    for _ in range(2):
        assert new_context(sessions, 0, 0, [target("a", 0)]).session_id > 0
    assert new_context(sessions, 0, 0, [target("a", 0)]).session_id == 0


def test_a_stale_session_makes_room(sessions: FetchSessionCache) -> None:
    stale = new_context(sessions, 0, 0, [target("a", 0)]).session_id
    new_context(sessions, 0, 0, [target("a", 0)], now=100.0)
    assert new_context(sessions, 0, 0, [target("a", 0)], now=121.0).session_id > 0
    with pytest.raises(FetchSessionIdNotFoundError):
        new_context(sessions, stale, 1, [], now=121.0)


def test_a_session_whose_place_was_taken_while_its_request_was_read_is_not_known(sessions: FetchSessionCache) -> None:
    first = new_context(sessions, 0, 0, [target("a", 0)], replica_id=2)
    session = sessions.resume(first.session_id, 1, False, 2)
    sessions.drop(session)
    name_partitions(session.targets, "a", ZERO_ID, [FetchPartition(partition=1)], session.follower)
    with pytest.raises(FetchSessionIdNotFoundError):
        sessions.next_context(session, [], 0.0)
    assert session.follower is not None
    assert not session.follower.dirty, "nothing of it is told of changes any more"


def test_a_partition_that_is_named_twice_is_asked_as_named_last() -> None:
    named: dict[TargetKey, FetchTarget] = {}
    wanted = [FetchPartition(partition=1, fetch_offset=offset) for offset in (5, 7)]
    name_partitions(named, "a", ZERO_ID, wanted, None)
    assert [(each.index, each.fetch_offset) for each in named.values()] == [(1, 7)]


def test_a_follower_goes_before_a_consumer(sessions: FetchSessionCache) -> None:
    for _ in range(2):
        new_context(sessions, 0, 0, [target("a", 0)])
    assert new_context(sessions, 0, 0, [target("a", 0)], replica_id=2).session_id > 0
    assert sessions.evicted == 1


def test_only_news_is_told() -> None:
    subject = target("a", 0)
    assert subject.has_changed(0, 0, 10, 0)
    assert not subject.has_changed(0, 0, 10, 0)
    assert subject.has_changed(0, 100, 10, 0)
    assert subject.has_changed(0, 0, 11, 0)
    assert subject.has_changed(0, 0, 11, 3)
    assert subject.has_changed(3, 0, -1, -1)
    assert subject.has_changed(0, 0, 11, 3)


def test_partitions_with_data_go_last(sessions: FetchSessionCache) -> None:
    first = new_context(sessions, 0, 0, [target("a", 0), target("a", 1)])
    assert first.session is not None
    first.session.had_data([first.targets[0]])
    second = new_context(sessions, first.session_id, 1, [])
    assert [t.index for t in second.targets] == [1, 0]
