"""The arithmetic of replication, also against the slowest way to say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.replication.progress import NEVER, UNKNOWN_OFFSET, RemoteReplica, ReplicaProgress

LAG_S = 10.0


def everybody(broker_id: int) -> bool:
    return True


def nobody(broker_id: int) -> bool:
    return False


def progress(isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)) -> ReplicaProgress:
    return ReplicaProgress(1, replicas, isr, 5, 0.0)


def fetch(made: ReplicaProgress, broker_id: int, offset: int, leader_end: int, now: float) -> None:
    made.remotes[broker_id].fetched(offset, 0, leader_end, now, -1)


def test_nothing_is_committed_before_every_in_sync_replica_has_fetched() -> None:
    made = progress()
    assert made.high_watermark(9, 9, 1, 0.0, LAG_S, everybody) == UNKNOWN_OFFSET
    fetch(made, 2, 9, 9, 1.0)
    assert made.high_watermark(9, 9, 1, 1.0, LAG_S, everybody) == UNKNOWN_OFFSET
    fetch(made, 3, 7, 9, 1.0)
    assert made.high_watermark(9, 9, 1, 1.0, LAG_S, everybody) == 7


def test_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    made = progress((1,))
    assert made.high_watermark(9, 9, 2, 0.0, LAG_S, everybody) == UNKNOWN_OFFSET
    assert made.high_watermark(9, 9, 1, 0.0, LAG_S, everybody) == 9


def test_the_leader_counts_up_to_what_it_vouches_for() -> None:
    made = progress((1, 2))
    fetch(made, 2, 9, 9, 1.0)
    assert made.high_watermark(6, 9, 1, 1.0, LAG_S, everybody) == 6


def test_a_live_replica_that_is_about_to_join_holds_the_high_watermark() -> None:
    made = progress((1, 2))
    fetch(made, 2, 12, 12, 0.0)
    fetch(made, 3, 10, 10, 0.0)  # caught up as of then
    assert made.high_watermark(12, 12, 1, LAG_S, LAG_S, everybody) == 10
    assert made.high_watermark(12, 12, 1, LAG_S, LAG_S, nobody) == 12
    assert made.high_watermark(12, 12, 1, LAG_S + 0.1, LAG_S, everybody) == 12


def test_a_proposed_change_counts_either_way() -> None:
    made = progress((1, 2))
    fetch(made, 2, 9, 9, 0.0)
    fetch(made, 3, 8, 9, 0.0)
    made.propose((1, 2, 3))
    assert made.maximal_isr == (1, 2, 3)
    assert made.high_watermark(9, 9, 1, 0.0, LAG_S, nobody) == 8
    made.withdraw()
    assert made.high_watermark(9, 9, 1, 0.0, LAG_S, nobody) == 9
    made.propose((1,))
    assert made.maximal_isr == (1, 2), "until the controller has agreed, the one that is to leave counts"
    made.commit((1,))
    assert (made.isr, made.maximal_isr, made.proposed) == ((1,), (1,), None)


def test_a_replica_joins_with_all_that_is_committed_and_all_from_before_the_epoch() -> None:
    made = progress((1,))
    replica = made.remotes[2]
    fetch(made, 2, 4, 9, 0.0)
    assert not made.may_join(replica, 3), "the epoch began at 5"
    fetch(made, 2, 6, 9, 0.0)
    assert not made.may_join(replica, 7)
    assert made.may_join(replica, 6)
    made.propose((1, 3))
    assert not made.may_join(replica, 6), "one change at a time"
    made.commit((1, 2))
    assert not made.may_join(replica, 6), "it is there"


def test_who_did_not_catch_up_for_the_lag_time_leaves() -> None:
    made = progress()
    assert made.lagging(9, LAG_S, LAG_S) == []
    assert made.lagging(9, LAG_S + 1, LAG_S) == [2, 3], "never fetched in this epoch"
    fetch(made, 2, 9, 9, LAG_S)
    assert made.lagging(9, 100.0, LAG_S) == [3], "idle, but with everything"
    made.propose((1, 2))
    assert made.lagging(9, 100.0, LAG_S) == []


def test_a_replica_behind_a_busy_leader_caught_up_with_what_there_was_at_its_last_fetch() -> None:
    replica = RemoteReplica(2, NEVER)
    replica.fetched(0, 0, 10, 1.0, -1)
    assert replica.caught_up_s == NEVER
    replica.fetched(10, 0, 20, 2.0, -1)
    assert replica.caught_up_s == 1.0
    replica.fetched(15, 0, 30, 3.0, -1)
    assert replica.caught_up_s == 1.0, "at 2.0 the leader had 20"
    replica.fetched(30, 0, 30, 4.0, -1)
    assert replica.caught_up_s == 4.0


def test_an_idle_partition_is_caught_up_as_long_as_its_session_fetches() -> None:
    replica = RemoteReplica(2, NEVER)
    replica.fetched(10, 0, 10, 1.0, -1)
    replica.fetched_nothing(50.0)
    assert replica.is_caught_up(11, 55.0, LAG_S)
    replica.fetched_nothing(40.0)
    assert replica.caught_up_s == 50.0


def test_the_low_watermark_is_of_those_that_live() -> None:
    made = progress()
    made.remotes[2].fetched(9, 4, 9, 0.0, -1)
    assert made.low_watermark(6, everybody) == UNKNOWN_OFFSET
    assert made.low_watermark(6, lambda broker: broker == 2) == 4
    assert made.low_watermark(6, nobody) == 6


@pytest.mark.parametrize(
    ("rack", "offset", "nearest"),
    [
        ("a", 6, -1),  # the leader's own
        ("b", 6, 2),  # the longest log there
        ("b", 4, 3),  # the only one that has it
        ("b", 10, -1),  # nobody there has it yet
        ("c", 6, -1),  # not in sync
        ("d", 6, -1),
    ],
)
def test_the_replica_in_the_rack_of_a_consumer(rack: str, offset: int, nearest: int) -> None:
    made = progress((1, 2, 3), (1, 3, 2, 4))
    for broker, start, end in ((2, 5, 9), (3, 0, 8), (4, 0, 9)):
        made.remotes[broker].fetched(end, start, 9, 1.0, -1)
    assert made.nearest_replica(rack, offset, {1: "a", 2: "b", 3: "b", 4: "c"}.get) == nearest


offsets = st.integers(0, 8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), offsets, st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3]), offsets),
        st.tuples(st.just("shrink"), st.just(0), st.just(0)),
        st.tuples(st.just("stored"), st.booleans(), st.just(0)),
        st.tuples(st.just("time"), st.sampled_from([1, 6, 20]), st.just(0)),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 3))
def test_whatever_happens_all_that_is_committed_is_on_every_stored_in_sync_replica(
    run: list[tuple[str, int, int]], min_isr: int
) -> None:
    """The controller may have stored what is proposed long before the leader hears of it: both are checked."""
    made = ReplicaProgress(1, (1, 2, 3), (1, 2, 3), 0, 0.0)
    end, now, committed = 0, 0.0, 0
    for what, first, second in run:
        if what == "append":
            end += first
        elif what == "fetch":
            known = made.remotes[first].log_end_offset
            made.remotes[first].fetched(min(max(known, second), end), 0, end, now, -1)
            replica = made.remotes[first]
            if made.may_join(replica, committed):
                made.propose((*made.isr, first))
        elif what == "shrink":
            lagging = made.lagging(end, now, LAG_S)
            if lagging:
                made.propose(tuple(each for each in made.isr if each not in lagging))
        elif what == "stored" and made.proposed is not None:
            if first:
                made.commit(made.proposed)
            else:
                made.withdraw()
        elif what == "time":
            now += first
        reached = made.high_watermark(end, end, min_isr, now, LAG_S, everybody)
        if reached > committed:
            assert len(made.isr) >= min_isr
            committed = reached
        for isr in [made.isr] if made.proposed is None else [made.isr, made.proposed]:
            held = [max(made.remotes[each].log_end_offset, 0) for each in isr if each != 1]
            assert all(each >= committed for each in held)


def test_how_long_a_replica_lacks_something() -> None:
    made = ReplicaProgress(1, (1, 2, 3), (1, 2), 5, 100.0)
    # In this leader epoch nothing is known of it before.
    assert made.behind_s(made.remotes[3], 130.0) == 30.0
    fetch(made, 3, 7, 9, 110.0)
    assert made.behind_s(made.remotes[3], 130.0) == 30.0
    fetch(made, 3, 9, 9, 120.0)
    assert made.behind_s(made.remotes[3], 130.0) == 10.0
