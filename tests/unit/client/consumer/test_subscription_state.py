"""What is read: the rules of subscribe, assign and what groups give."""

from __future__ import annotations

import re

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.partition_state import INITIALISING
from braidlog.client.consumer.subscription_state import SubscriptionKind, SubscriptionState
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_the_last_subscription_counts() -> None:
    state = SubscriptionState()
    state.subscribe(["a", "b"], None)
    before = state.topics_version
    state.subscribe(["b"], None)
    assert state.topics == {"b"}
    assert state.topics_version > before


def test_kinds_do_not_mix() -> None:
    state = SubscriptionState()
    state.assign([A0])
    with pytest.raises(UserError, match="unsubscribe"):
        state.subscribe(["a"], None)
    state.unsubscribe()
    state.subscribe(["a"], None)
    with pytest.raises(UserError, match="unsubscribe"):
        state.assign([A0])
    with pytest.raises(UserError, match="unsubscribe"):
        state.subscribe_pattern(re.compile("a"), [], None)


def test_a_pattern_matches_whole_names_and_no_internal_topics() -> None:
    state = SubscriptionState()
    state.subscribe_pattern(re.compile("a.*|__.*"), ["a", "ab", "ba", "__consumer_offsets"], None)
    assert state.topics == {"a", "ab"}
    version = state.topics_version
    assert not state.match(["a", "ab", "c"])
    assert state.topics_version == version
    assert state.match(["a", "ab", "abc"])
    assert state.topics == {"a", "ab", "abc"}
    assert state.topics_version > version
    open_to_all = SubscriptionState(exclude_internal=False)
    open_to_all.subscribe_pattern(re.compile("__.*"), ["__consumer_offsets"], None)
    assert open_to_all.topics == {"__consumer_offsets"}


def test_partitions_that_stay_keep_their_position() -> None:
    state = SubscriptionState()
    state.subscribe(["a", "b"], None)
    state.assign_from_group([A0, A1])
    kept, gone = state.state(A0), state.state(A1)
    kept.seek(5, 1)
    gone.seek(7)
    state.assign_from_group([A0, B0])
    assert state.assignment() == [A0, B0]
    assert state.state(A0) is kept
    assert state.consumed() == {A0: OffsetAndMetadata(5, "", 1)}
    assert not gone.is_current
    assert state.state(B0).phase == INITIALISING
    with pytest.raises(UserError, match="not assigned"):
        state.state(A1)


def test_one_that_went_and_came_back_starts_over() -> None:
    state = SubscriptionState()
    state.assign([A0, A1])
    state.state(A0).seek(5)
    state.assign([A1])
    state.assign([A0, A1])
    assert state.position_of(A0) is None


def test_groups_give_only_what_is_subscribed() -> None:
    state = SubscriptionState()
    with pytest.raises(ValueError, match="nothing"):
        state.assign_from_group([A0])
    state.subscribe(["a"], None)
    with pytest.raises(ValueError, match="not subscribed: b"):
        state.assign_from_group([A0, B0])


def test_what_is_about_to_go_is_neither_fetched_nor_returned() -> None:
    state = SubscriptionState()
    state.subscribe(["a"], None)
    state.assign_from_group([A0, A1])
    for each in (A0, A1):
        state.state(each).seek(1)
    state.mark_pending_revocation([A0, B0])
    assert not state.state(A0).is_fetchable()
    assert not state.state(A0).is_readable()
    assert A0 in state.consumed()
    state.assign_from_group([A0])
    assert state.state(A0).is_fetchable()


def test_unsubscribing_clears_everything() -> None:
    state = SubscriptionState()
    state.subscribe(["a"], None)
    state.assign_from_group([A0])
    state.group_subscribe(["a", "b"])
    assert state.group_topics == {"a", "b"}
    state.unsubscribe()
    assert state.kind is SubscriptionKind.NONE
    assert (state.topics, state.group_topics, state.assignment()) == (frozenset(), frozenset(), [])
