"""What programs are told, whatever they make of it."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from braidlog.client.consumer.listener import RebalanceListener
from braidlog.client.consumer.membership.ownership import Ownership
from braidlog.client.consumer.subscription import SubscriptionState
from support.membership_scene import Diary, partitions


def made(listener: object) -> Ownership:
    subscription = SubscriptionState()
    subscription.subscribe(["t"], cast(RebalanceListener, listener))
    return Ownership(subscription, "g")


def test_partitions_are_told_in_order_and_nothing_is_no_news_of_a_loss() -> None:
    diary = Diary()
    ownership = made(diary)
    ownership.revoke(partitions("t", 2, 1))
    ownership.revoke([])
    ownership.lose([])
    ownership.take([])
    assert diary.reported == [("revoked", partitions("t", 1, 2)), ("assigned", [])]


def test_the_first_error_is_kept_until_everything_is_told() -> None:
    diary = Diary()
    ownership = made(diary)
    diary.trouble = KeyError("first")
    ownership.revoke(partitions("t", 0))
    diary.trouble = KeyError("second")
    ownership.take(partitions("t", 1))
    assert diary.words == ["revoked", "assigned"]
    with pytest.raises(KeyError, match="first"):
        ownership.raise_error()
    ownership.raise_error()


def test_a_listener_may_have_only_what_it_needs() -> None:
    class OnlyRevoked:
        def __init__(self) -> None:
            self.reported: list[object] = []

        def on_partitions_revoked(self, going: list[object]) -> None:
            self.reported.append(going)

    listener = OnlyRevoked()
    ownership = made(listener)
    ownership.take(partitions("t", 0))
    ownership.lose(partitions("t", 0))
    assert listener.reported == [partitions("t", 0)]


def test_a_log_line_does_not_name_thousands(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        made(Diary()).revoke(partitions("t", *range(1_000)))
    assert "t-19 and 980 more" in caplog.text
