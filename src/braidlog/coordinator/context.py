"""A partition that this broker leads, with its shard and what waits for its log."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

from braidlog.coordinator.effects import Action
from braidlog.coordinator.partition_writer import AppendCallback
from braidlog.coordinator.responses import Reply
from braidlog.coordinator.shard import CoordinatorShard

S = TypeVar("S", bound=CoordinatorShard)

LOADING: Final = 0
ACTIVE: Final = 1
# Its log cannot be read: unavailable until the broker leads it anew.
FAILED: Final = 2


class DeferredEvent:
    """What waits for one batch to be committed."""

    __slots__ = ("actions", "committed", "done", "replies")

    def __init__(self, replies: list[Reply], actions: list[Action]) -> None:
        self.replies = replies
        self.actions = actions
        self.done: AppendCallback | None = None
        self.committed = False


class CoordinatorContext(Generic[S]):
    """A partition that this broker leads, and its shard."""

    def __init__(self, topic: str, partition: int, leader_epoch: int, shard: S) -> None:
        self.name = f"{topic}-{partition}"
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = LOADING
        # In the order of the log.
        self.pending: deque[DeferredEvent] = deque()
        # Appends that are neither committed nor failed, also those that nobody waits for any more.
        self.in_flight = 0
        # To be loaded, but not before the log has settled.
        self.waits_for_log = False
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at = 0.0
