"""Partitions that come and go, as the program hears of it: always in its own thread, errors kept until all is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.client.group")

# Partitions that a line of the log names.
_SHOWN: Final = 20


class RebalanceListenerInvoker:
    def __init__(self, subscription: SubscriptionState, group_id: str) -> None:
        self._subscription = subscription
        self._group_id = group_id
        self._error: BaseException | None = None

    def invoke_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Still ours while the program is told; the caller takes them away afterwards."""
        going = sorted(partitions)
        if going:
            log.info("group %s: gives up %s", self._group_id, _listed(going))
            self._tell("on_partitions_revoked", going)

    def invoke_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Perhaps others have them already."""
        gone = sorted(partitions)
        if gone:
            log.warning("group %s: has lost %s; others may read them by now", self._group_id, _listed(gone))
            self._tell("on_partitions_lost", gone, "on_partitions_revoked")

    def invoke_assigned(self, added: Iterable[TopicPartition]) -> None:
        """Told also when nothing came: a rebalance is over."""
        new = sorted(added)
        log.info("group %s: has now %s", self._group_id, _listed(self._subscription.assignment()))
        self._tell("on_partitions_assigned", new)

    def _tell(self, name: str, partitions: list[TopicPartition], otherwise: str = "") -> None:
        listener = self._subscription.listener
        callback: Callable[[list[TopicPartition]], object] | None = getattr(listener, name, None)
        if callback is None and otherwise:
            callback = getattr(listener, otherwise, None)
        if callback is None:
            return
        try:
            callback(partitions)
        except BaseException as problem:
            # The group goes on without asking; the program hears of its own error when everything is in its place.
            if self._error is None:
                self._error = problem

    def raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _listed(partitions: Collection[TopicPartition]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:_SHOWN])) or "nothing"
    return shown if len(partitions) <= _SHOWN else f"{shown} and {len(partitions) - _SHOWN} more"
