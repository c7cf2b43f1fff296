"""The admin client's settings."""

from __future__ import annotations

from typing import Final

from braidlog.config.rules import at_least
from braidlog.config.setting import HIGH, INT, LIST, LONG, LOW, MEDIUM, Setting

SETTINGS: Final = (
    Setting("connections.max.idle.ms", LONG, 300_000, MEDIUM,
        doc="Idle connections are closed after this time; -1 keeps them.",
    ),
    Setting("bootstrap.controllers", LIST, "", HIGH, doc="Controllers to ask first, instead of brokers.",
        no_effect="brokers hand on what is the controller's business; give `bootstrap.servers`",
    ),
    Setting("retries", INT, 2_147_483_647, LOW, rule=at_least(0), doc="How often a call is tried again.",
        no_effect="a call is tried again until `default.api.timeout.ms`",
    ),
)  # fmt: skip
