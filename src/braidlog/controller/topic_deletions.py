"""Deletions that are under way: their nodes go when the last replica has gone, and requests wait for that.

`deletion` decides what to ask of brokers; this waits, and removes the topics from the store.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from braidlog.cluster import paths
from braidlog.cluster.image import TopicImage, no_leader
from braidlog.cluster.store import NoNodeError, StoreFailedError
from braidlog.controller import deletion
from braidlog.controller.events import Decision, StoreEvent
from braidlog.controller.gauges import ControllerState
from braidlog.controller.plan import Plan
from braidlog.core.types import BrokerId

if TYPE_CHECKING:
    from braidlog.controller.active_controller import ActiveController

# How long the creation of a topic waits for the deletion of one with its name.
_PATIENCE_S: Final = 5.0

_log = logging.getLogger("braidlog.controller")


class TopicDeletions:
    """Part of the controller in office, which calls `changed` when a deletion has come further."""

    def __init__(self, active: ActiveController, broker_id: BrokerId) -> None:
        self._active = active
        self._broker_id = broker_id
        # Creations that wait for a deletion to finish.
        self._parked: list[Decision] = []
        self._waiters: list[tuple[frozenset[str], asyncio.Future[None]]] = []

    async def settled(self, names: frozenset[str]) -> None:
        """Until these topics are gone, or only other brokers, or a broker's return, can make them go."""
        if self._active.dropped or all(self._settled(name) for name in names):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((names, waiter))
        await waiter

    def _settled(self, name: str) -> bool:
        going = self._active.context.deletions.get(name)
        if going is None or going.suspended or going.unremoved:
            return True
        return any(broker != self._broker_id for _, broker in going.replicas)

    def changed(self) -> None:
        under_way = self._active.context.deletions.values()
        if any(going.finished and not going.unremoved for going in under_way):
            self._active.heard("finished deletions", self.remove_finished, ControllerState.TOPIC_DELETION)
        waiting, self._waiters = self._waiters, []
        for names, waiter in waiting:
            if waiter.done():
                continue
            if all(self._settled(name) for name in names):
                waiter.set_result(None)
            else:
                self._waiters.append((names, waiter))
        if all(going.suspended or going.unremoved for going in under_way):
            self._unpark()

    # -- creations that wait --

    def park(self, decision: Decision) -> None:
        self._parked.append(decision)
        asyncio.get_running_loop().call_later(_PATIENCE_S, self._out_of_patience, decision)

    def is_parked(self, decision: Decision) -> bool:
        return decision in self._parked

    def _out_of_patience(self, decision: Decision) -> None:
        if decision in self._parked:
            self._parked.remove(decision)
            decision.patient = False
            self._active.put(decision)

    def _unpark(self) -> None:
        parked, self._parked = self._parked, []
        self._active.put_first(parked)

    # -- the store --

    async def retry_removal(self) -> None:
        """Of what the store had no room for: with whatever the controller does next."""
        if any(going.unremoved for going in self._active.context.deletions.values()):
            await self.remove_finished()

    async def remove_finished(self) -> None:
        """The nodes of topics whose replicas are all gone; where the store has no room, tried again and again.

        Until it works these topics cannot be created again.
        """
        going = {name: each for name, each in self._active.context.deletions.items() if each.finished}
        if not going:
            return
        try:
            for steps in deletion.forget_topics([await self._with_all_nodes(each.topic) for each in going.values()]):
                await self._active.commit_steps(Plan(steps))
        except StoreFailedError as problem:
            if not all(each.unremoved for each in going.values()):
                _log.warning("deleted topics stay in the store for now, the removal is tried again: %s", problem)
            unremoved = {name: each._replace(unremoved=True) for name, each in going.items()}
            await self._active.apply(Plan(deletions=unremoved))
            self._active.again_later(
                StoreEvent("finished deletions", self.remove_finished, ControllerState.TOPIC_DELETION)
            )
        else:
            await self._active.apply(Plan(deletions=dict.fromkeys(going)))
        self._unpark()

    async def _with_all_nodes(self, topic: TopicImage) -> TopicImage:
        """Partitions that a tool added after the deletion began have nodes, too."""
        try:
            nodes = await self._active.store.children(paths.partitions(topic.name))
        except NoNodeError:
            return topic
        missing = max((int(name) + 1 for name in nodes if name.isdecimal()), default=0) - len(topic.partitions)
        return topic._replace(partitions=topic.partitions + (no_leader(()),) * missing)

    def drop(self, error: Exception) -> None:
        """The office is lost: all that waits is answered."""
        for decision in self._parked:
            decision.fail(error)
        self._parked.clear()
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
