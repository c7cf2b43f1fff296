from __future__ import annotations

import pytest

from braidlog.coordinator.group.classic.consumer_protocol import NEWEST, parse_subscription, subscribed_topics
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolSubscription
from braidlog.wire.version_prefix import version_prefixed_bytes


def subscription(*topics: str, version: int = NEWEST) -> bytes:
    return version_prefixed_bytes(ConsumerProtocolSubscription(topics=list(topics)), version)


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_every_version_is_understood(version: int) -> None:
    parsed = parse_subscription(subscription("a", "b", version=version))
    assert parsed is not None
    assert parsed.topics == ["a", "b"]


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    content = (99).to_bytes(2, "big") + subscription("a")[2:] + b"more"
    parsed = parse_subscription(content)
    assert parsed is not None
    assert parsed.topics == ["a"]
    assert subscribed_topics([content]) == {"a"}


@pytest.mark.parametrize("content", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff"])
def test_foreign_bytes_are_no_subscription(content: bytes) -> None:
    assert parse_subscription(content) is None
    assert subscribed_topics([subscription("a"), content]) is None


def test_the_topics_of_all_members() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c", version=0)]) == {"a", "b", "c"}
    assert subscribed_topics([]) == frozenset()
