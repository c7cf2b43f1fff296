"""Before a broker stops, it asks the controller to move the leaders away that it has (KIP-380)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from braidlog.cluster.store import StoreConnectionError
from braidlog.config.broker import BrokerSettings
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.errors import ClientError

log = logging.getLogger("braidlog.broker")


async def move_leaders_away(settings: BrokerSettings, ask: Callable[[], Awaitable[Sequence[TopicPartition]]]) -> bool:
    """`ask` returns what could not be moved. False where the broker stops with leaders that nobody took over."""
    if not settings.get_bool("controlled.shutdown.enable"):
        return False
    pause_s = settings.get_int("controlled.shutdown.retry.backoff.ms") / 1000
    tries = max(1, settings.get_int("controlled.shutdown.max.retries"))
    for number in range(1, tries + 1):
        try:
            left = await ask()
            if not left:
                return True
            log.info("controlled shutdown: %d leaders could not be moved yet, such as %s", len(left), left[0])
        except (ClientError, ProtocolError, StoreConnectionError) as problem:
            log.warning("controlled shutdown, attempt %d of %d: %s", number, tries, problem)
        if number < tries:
            await asyncio.sleep(pause_s)
    log.warning("stopping without a controlled shutdown: what this broker leads has no leader until others take over")
    return False
