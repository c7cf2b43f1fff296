"""What the parts of one consumer share."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidlog.client.consumer.subscription_state import SubscriptionState
    from braidlog.client.consumer.wakeup import Wakeup
    from braidlog.client.metadata import Metadata
    from braidlog.client.network.engine import Engine
    from braidlog.client.network.nodes import Nodes
    from braidlog.client.settings import Settings
    from braidlog.core.clock import Clock


class ConsumerContext:
    __slots__ = (
        "client_id",
        "clock",
        "engine",
        "group_id",
        "metadata",
        "nodes",
        "random",
        "settings",
        "subscription",
        "wakeup",
    )

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        nodes: Nodes,
        metadata: Metadata,
        subscription: SubscriptionState,
        wakeup: Wakeup,
        clock: Clock,
        random: Random | None = None,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.nodes = nodes
        self.metadata = metadata
        self.subscription = subscription
        self.wakeup = wakeup
        self.clock = clock
        self.random = random or Random()
        self.client_id = settings.text("client.id")
        self.group_id: str | None = settings.optional_text("group.id")
