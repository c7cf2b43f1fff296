"""Calls of the rebalance listener, and its errors."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from braidlog.client.consumer.group.reconciliation import RebalanceListenerInvoker
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.subscription_state import SubscriptionState
from support.membership_harness import RecordingRebalanceListener, partitions


def made(listener: object) -> RebalanceListenerInvoker:
    subscription = SubscriptionState()
    subscription.subscribe(["t"], cast(RebalanceListener, listener))
    return RebalanceListenerInvoker(subscription, "g")


def test_partitions_are_sorted_and_none_lost_calls_nothing() -> None:
    listener = RecordingRebalanceListener()
    listener_invoker = made(listener)
    listener_invoker.invoke_revoked(partitions("t", 2, 1))
    listener_invoker.invoke_revoked([])
    listener_invoker.invoke_lost([])
    listener_invoker.invoke_assigned([])
    assert listener.reported == [("revoked", partitions("t", 1, 2)), ("assigned", [])]


def test_the_first_error_is_kept_until_every_call_was_made() -> None:
    listener = RecordingRebalanceListener()
    listener_invoker = made(listener)
    listener.trouble = KeyError("first")
    listener_invoker.invoke_revoked(partitions("t", 0))
    listener.trouble = KeyError("second")
    listener_invoker.invoke_assigned(partitions("t", 1))
    assert listener.words == ["revoked", "assigned"]
    with pytest.raises(KeyError, match="first"):
        listener_invoker.raise_error()
    listener_invoker.raise_error()


def test_a_listener_may_have_only_what_it_needs() -> None:
    class OnlyRevoked:
        def __init__(self) -> None:
            self.reported: list[object] = []

        def on_partitions_revoked(self, going: list[object]) -> None:
            self.reported.append(going)

    listener = OnlyRevoked()
    listener_invoker = made(listener)
    listener_invoker.invoke_assigned(partitions("t", 0))
    listener_invoker.invoke_lost(partitions("t", 0))
    assert listener.reported == [partitions("t", 0)]


def test_a_log_line_does_not_name_thousands(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        made(RecordingRebalanceListener()).invoke_revoked(partitions("t", *range(1_000)))
    assert "t-19 and 980 more" in caplog.text
