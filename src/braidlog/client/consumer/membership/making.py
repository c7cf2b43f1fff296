"""Chooses the protocol that a consumer speaks with its group."""

from __future__ import annotations

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.membership.classic_membership import ClassicMembership
from braidlog.client.consumer.membership.interface import Membership
from braidlog.client.consumer.membership.newer_membership import NewerMembership


def membership_for(context: ConsumerContext) -> Membership:
    if context.settings.text("group.protocol").lower() == "consumer":
        return NewerMembership(context)
    return ClassicMembership(context)
