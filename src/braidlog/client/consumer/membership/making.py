"""Chooses the protocol that a consumer speaks with its group."""

from __future__ import annotations

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.membership.classic_membership import ClassicMembership
from braidlog.client.consumer.membership.interface import Membership


def membership_for(context: ConsumerContext) -> Membership:
    return ClassicMembership(context)
