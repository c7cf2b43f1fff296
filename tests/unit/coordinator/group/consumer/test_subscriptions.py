from __future__ import annotations

import pytest

from braidlog.coordinator.group.consumer import subscriptions
from braidlog.coordinator.group.consumer.member import Profile
from braidlog.coordinator.group.consumer.subscriptions import (
    TopicMetadata,
    TopicRegexResolver,
    compute_subscription_metadata,
)
from braidlog.core.protocol_errors import InvalidRegularExpressionError
from support.consumer_groups import ChangingTopics


def test_a_pattern_is_resolved_once_per_change_of_topics() -> None:
    topics = ChangingTopics(a1=1, b=1)
    resolver = TopicRegexResolver(topics)
    assert resolver.resolve("a.*") == ("a1",)
    topics.create("a0", 1)
    assert resolver.resolve("a.*") == ("a1",)
    resolver.topics_changed()
    assert resolver.resolve("a.*") == ("a0", "a1")
    assert resolver.resolve("") == ()


def test_a_member_reads_what_it_names_and_what_its_pattern_stands_for() -> None:
    resolver = TopicRegexResolver(ChangingTopics(a=1, b=1, c=1))
    assert resolver.topics_of(Profile(topics=("c", "x"))) == ("c", "x")
    assert resolver.topics_of(Profile(regex="a|b")) == ("a", "b")
    assert resolver.topics_of(Profile(topics=("b", "c"), regex="a|b")) == ("a", "b", "c")


def test_a_pattern_out_of_a_log_may_be_one_that_is_not_known_here() -> None:
    resolver = TopicRegexResolver(ChangingTopics(a=1))
    with pytest.raises(InvalidRegularExpressionError):
        resolver.validate(r"\p{Greek}+")
    assert resolver.resolve(r"\p{Greek}+") == ()


def test_patterns_that_nobody_uses_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_PATTERNS", 3)
    resolver = TopicRegexResolver(ChangingTopics(a1=1))
    for number in range(10):
        resolver.validate(f"a{number}")
        assert len(resolver._patterns) <= 3
    assert resolver.resolve("a1") == ("a1",)
    resolver.forget_unused(["a1"])
    assert list(resolver._patterns) == ["a1"]


def test_what_patterns_stood_for_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_RESOLVED", 3)
    resolver = TopicRegexResolver(ChangingTopics(a1=1))
    for number in range(10):
        assert resolver.resolve(f"a{number}|a1") == ("a1",)
        assert len(resolver._resolved) <= 3


def test_a_snapshot_has_the_topics_that_are_there_and_racks_where_any_is_known() -> None:
    topics = ChangingTopics(a=2, b=1)
    topics.racks["a", 1] = frozenset({"r"})
    assert compute_subscription_metadata(["a", "b", "x"], topics) == {
        "a": TopicMetadata(topics.facts["a"].topic_id, 2, (frozenset(), frozenset({"r"}))),
        "b": TopicMetadata(topics.facts["b"].topic_id, 1),
    }
