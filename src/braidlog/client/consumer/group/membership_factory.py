"""Chooses the protocol that a consumer speaks with its group."""

from __future__ import annotations

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.classic_membership import ClassicMembership
from braidlog.client.consumer.group.consumer_protocol_membership import ConsumerProtocolMembership
from braidlog.client.consumer.group.membership import Membership


def membership_for(context: ConsumerContext) -> Membership:
    if context.settings.text("group.protocol").lower() == "consumer":
        return ConsumerProtocolMembership(context)
    return ClassicMembership(context)
