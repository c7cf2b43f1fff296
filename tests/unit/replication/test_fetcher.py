from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import NONE, FetchSessionIdNotFoundError, InvalidFetchSessionEpochError
from braidlog.core.replication_quota import UNLIMITED
from braidlog.core.types import TopicPartition
from braidlog.replication.fetcher import Fetcher, FetchPlan
from braidlog.replication.follower import PartitionFetchState
from braidlog.replication.partition import Partition
from braidlog.replication.topic_metrics import TopicMetrics
from support.log_kit import Kit

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SESSION = 77
BACKOFF_S = 1.0


def topic_id(topic: str) -> bytes:
    return topic[0].encode() * 16


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def followed(kit: Kit, key: TopicPartition, *, given_id: bytes | None = None) -> PartitionFetchState:
    partition = Partition(key.topic, key.partition, given_id or topic_id(key.topic), 1, TopicMetrics())
    partition.log = kit.open()
    partition.update_leader_and_isr(2, 5, (2, 1), (2, 1))
    return PartitionFetchState(partition)


def fetching(fetcher: Fetcher, *states: PartitionFetchState) -> None:
    for state in states:
        fetcher.add(state)
        state.truncate_to_high_watermark()
        fetcher.truncated(state)


def asked(plan: FetchPlan | None) -> tuple[int, int, list[str], list[str]]:
    assert plan is not None
    return (
        plan.session_id,
        plan.epoch,
        [state.key.topic for state in plan.asked],
        [f"{key.topic} {gone[:1].decode()}" for key, gone in plan.forgotten.items()],
    )


@pytest.fixture
def in_session(kit: Kit) -> tuple[Fetcher, PartitionFetchState, PartitionFetchState]:
    """A fetcher whose leader has given it a session with two partitions."""
    fetcher = Fetcher()
    first, second = followed(kit, A), followed(kit, B)
    fetching(fetcher, first, second)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (0, 0, ["a", "b"], [])
    fetcher.on_response(NONE, SESSION)
    return fetcher, first, second


def test_nothing_is_asked_before_positions_are_known(kit: Kit) -> None:
    fetcher = Fetcher()
    assert fetcher.next_request(0.0, uses_ids=True) is None
    state = followed(kit, A)
    fetcher.add(state)
    assert fetcher.truncating(0.0) == [state]
    assert fetcher.next_request(0.0, uses_ids=True) is None
    state.truncate_to_high_watermark()
    fetcher.truncated(state)
    assert fetcher.truncating(0.0) == []
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (0, 0, ["a"], [])


def test_a_session_is_told_changes_only(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], kit: Kit
) -> None:
    fetcher, first, _ = in_session
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, [], [])
    fetcher.on_response(NONE, SESSION)
    fetcher.moved(first)
    fetcher.moved(first)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 2, ["a"], [])
    fetcher.on_response(NONE, SESSION)
    fetcher.remove(B)
    third = followed(kit, TopicPartition("c", 0))
    fetching(fetcher, third)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 3, ["c"], ["b b"])
    fetcher.on_response(NONE, SESSION)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 4, [], [])


def test_a_topic_that_was_made_anew_is_another_one(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], kit: Kit
) -> None:
    fetcher, first, _ = in_session
    other = followed(kit, A, given_id=b"x" * 16)
    fetching(fetcher, other)
    assert not fetcher.follows(first)
    assert fetcher.follows(other)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, ["a"], ["a a"])
    assert fetcher.of_topic("", topic_id("a")).get(0) is None
    assert fetcher.of_topic("", b"x" * 16).get(0) is other


def test_a_new_epoch_of_the_same_topic_is_named_and_not_forgotten(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], kit: Kit
) -> None:
    fetcher, _, _ = in_session
    fetching(fetcher, followed(kit, A))
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, ["a"], [])


@pytest.mark.parametrize(
    ("error", "session_id"),
    [(InvalidFetchSessionEpochError.code, SESSION), (FetchSessionIdNotFoundError.code, 0), (NONE, 0)],
)
def test_a_session_that_ended_is_begun_anew(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], error: int, session_id: int
) -> None:
    """One that may live is named, so that the full request closes it."""
    fetcher, _, _ = in_session
    fetcher.next_request(0.0, uses_ids=True)
    fetcher.on_response(error, 0)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (session_id, 0, ["a", "b"], [])


def test_without_an_answer_the_session_is_begun_anew(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, _, _ = in_session
    fetcher.on_no_response()
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 0, ["a", "b"], [])


def test_a_session_of_ids_does_not_become_one_of_names(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], kit: Kit
) -> None:
    fetcher, first, _ = in_session
    has_ids = [fetcher.has_ids]
    for name in ("old", "older"):
        fetching(fetcher, followed(kit, TopicPartition(name, 0), given_id=ZERO_ID))
        has_ids.append(fetcher.has_ids)
    assert asked(fetcher.next_request(0.0, uses_ids=False)) == (SESSION, 0, ["a", "b", "old", "older"], [])
    assert fetcher.of_topic("a", ZERO_ID).get(0) is first
    for name in ("old", "older"):
        fetcher.remove(TopicPartition(name, 0))
        has_ids.append(fetcher.has_ids)
    assert has_ids == [True, False, False, False, True]


def test_a_failed_partition_is_left_alone_for_a_while(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, first, _ = in_session
    fetcher.delay(first, 10.0, BACKOFF_S)
    fetcher.moved(first)
    assert fetcher.retries_at == 11.0
    assert asked(fetcher.next_request(10.9, uses_ids=True)) == (SESSION, 1, [], ["a a"])
    fetcher.on_response(NONE, SESSION)
    assert asked(fetcher.next_request(11.0, uses_ids=True)) == (SESSION, 2, ["a"], [])
    assert fetcher.retries_at is None


def test_one_that_is_soon_well_is_tried_sooner_and_then_later(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, first, _ = in_session
    pauses = []
    for _ in range(7):
        fetcher.delay(first, 0.0, BACKOFF_S, briefly=True)
        pauses.append(first.retry_at)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_delay_of_an_epoch_that_is_over_ends_nothing(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], kit: Kit
) -> None:
    fetcher, first, _ = in_session
    fetcher.delay(first, 0.0, BACKOFF_S)
    again = followed(kit, A)
    fetcher.add(again)
    fetcher.delay(again, 0.5, BACKOFF_S)
    assert fetcher.truncating(1.0) == []
    assert fetcher.truncating(1.5) == [again]


def test_with_all_partitions_delayed_there_is_nothing_to_ask(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, first, second = in_session
    fetcher.delay(first, 0.0, BACKOFF_S)
    fetcher.delay(second, 0.0, BACKOFF_S)
    assert fetcher.next_request(0.5, uses_ids=True) is None
    assert asked(fetcher.next_request(1.0, uses_ids=True)) == (SESSION, 0, ["a", "b"], [])


def test_roles_that_ended_are_not_asked_for(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, first, _ = in_session
    first.partition.stop()
    fetcher.moved(first)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, [], [])
    assert not fetcher.follows(first)


def many(kit: Kit, count: int) -> list[PartitionFetchState]:
    log = kit.open()
    states = []
    for index in range(count):
        partition = Partition("many", index, topic_id("many"), 1, TopicMetrics())
        partition.log = log
        partition.update_leader_and_isr(2, 5, (2, 1), (2, 1))
        states.append(PartitionFetchState(partition))
    return states


def test_a_session_gets_very_many_partitions_over_several_requests(kit: Kit) -> None:
    fetcher = Fetcher()
    fetching(fetcher, *many(kit, 2500))
    named = []
    for _ in range(4):
        plan = fetcher.next_request(0.0, uses_ids=True)
        assert plan is not None
        named.append((plan.epoch, len(plan.asked), plan.has_more))
        fetcher.on_response(NONE, SESSION)
    assert named == [(0, 1000, True), (1, 1000, True), (2, 500, False), (3, 0, False)]


def test_without_a_session_every_request_names_all(kit: Kit) -> None:
    fetcher = Fetcher()
    fetching(fetcher, *many(kit, 1500))
    named = []
    for _ in range(3):
        plan = fetcher.next_request(0.0, uses_ids=True)
        assert plan is not None
        named.append((plan.epoch, len(plan.asked), plan.has_more))
        fetcher.on_response(NONE, 0)
    assert named == [(0, 1000, True), (0, 1500, False), (0, 1500, False)]


def throttled(fetcher: Fetcher, *states: PartitionFetchState) -> None:
    for state in states:
        state.partition.follower_throttled = True
        fetcher.throttle_changed(state.key)


def never(state: PartitionFetchState) -> bool:
    return False


def test_throttled_replicas_take_turns_with_what_the_rate_allows(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, first, second = in_session
    throttled(fetcher, first, second)
    fetcher.share_out(100, 100, never)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, ["a"], ["b b"])
    assert first.max_bytes == 100
    fetcher.on_response(NONE, SESSION)
    fetcher.share_out(50, 100, never)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 2, ["b"], ["a a"])
    assert second.max_bytes == 50
    fetcher.on_response(NONE, SESSION)
    fetcher.share_out(0, 100, never)
    assert fetcher.has_held
    assert fetcher.next_request(0.0, uses_ids=True) is None
    fetcher.share_out(1000, 100, never)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 0, ["a", "b"], [])


def test_a_held_replica_goes_on_when_it_is_throttled_no_more(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState],
) -> None:
    fetcher, first, second = in_session
    throttled(fetcher, first)
    fetcher.share_out(0, 100, never)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, [], ["a a"])
    fetcher.on_response(NONE, SESSION)
    fetcher.moved(first)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 2, [], []), "it is held still"
    fetcher.on_response(NONE, SESSION)
    first.partition.follower_throttled = False
    fetcher.throttle_changed(A)
    fetcher.throttle_changed(B)
    assert not fetcher.has_held
    fetcher.share_out(0, 100, never)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 3, ["a"], [])
    assert (first.max_bytes, second.max_bytes) == (UNLIMITED, UNLIMITED)


def test_in_sync_replicas_are_not_held(in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState]) -> None:
    fetcher, first, second = in_session
    throttled(fetcher, first, second)
    fetcher.share_out(0, 100, lambda state: state is second)
    assert asked(fetcher.next_request(0.0, uses_ids=True)) == (SESSION, 1, [], ["a a"])
    fetcher.on_response(NONE, SESSION)
    fetcher.remove(A)
    assert not fetcher.has_held


def test_a_held_replica_that_is_delayed_or_new_waits_for_both(
    in_session: tuple[Fetcher, PartitionFetchState, PartitionFetchState], kit: Kit
) -> None:
    fetcher, first, _ = in_session
    throttled(fetcher, first)
    fetcher.delay(first, 0.0, BACKOFF_S)
    fetcher.share_out(0, 100, never)
    assert asked(fetcher.next_request(5.0, uses_ids=True)) == (SESSION, 1, [], ["a a"])
    fetcher.on_response(NONE, SESSION)
    fetcher.share_out(10, 100, never)
    assert asked(fetcher.next_request(5.0, uses_ids=True)) == (SESSION, 2, ["a"], [])
    fetcher.on_response(NONE, SESSION)
    later = followed(kit, TopicPartition("c", 0))
    later.partition.follower_throttled = True
    fetcher.add(later)
    fetcher.share_out(0, 100, never)
    later.truncate_to_high_watermark()
    fetcher.truncated(later)
    assert asked(fetcher.next_request(5.0, uses_ids=True)) == (SESSION, 3, [], ["a a"])
