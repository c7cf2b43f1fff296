"""What the controller hears of in the store: it watches, reads what changed, and lets the machine decide.

    /brokers/ids                          brokers that start, leave, bounce or change their addresses
    /brokers/topics, /brokers/topics/T    topics and partitions that another broker or tool created
    /admin/delete_topics                  topics that another broker or tool wants deleted
    /admin/reassign_partitions            moves and elections asked for through the store, as before there were
    /admin/preferred_replica_election     requests for them
    /isr_change_notification              ISRs that a leader changed in the store by itself
    /log_dir_event_notification           brokers that lost a data directory
    /config/changes                       overrides; unclean elections may be allowed now

Watches are set before anything is read, so nothing is missed. All reading happens in the controller's worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from braidlog.cluster import loading, paths, records
from braidlog.cluster.image import ImageDelta, TopicImage
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.store import NoNodeError, Watch, WatchEvent
from braidlog.controller import brokers, deletion, elections, reassignments, topics
from braidlog.controller.active_controller import ActiveController, partitions_of, slices
from braidlog.controller.gauges import ControllerState
from braidlog.controller.partitions import unclean_allowed
from braidlog.controller.plan import ControllerContext, Plan, Put, Remove, RequestBatch
from braidlog.controller.requests import ElectionType, Reassignment
from braidlog.core.types import BrokerId, TopicPartition

_log = logging.getLogger("braidlog.controller")

_TOPIC_PREFIX = f"{paths.TOPICS}/"
# Watches on topics that are set together.
_WATCHED_AT_A_TIME = 100


class StoreEvents:
    def __init__(self, active: ActiveController) -> None:
        self._active = active
        self._store = active.store
        self._watched_topics: set[str] = set()
        self._changed_topics: dict[str, None] = {}
        self._last_config_change = ""
        active.read_again = self._read_again

    @property
    def _context(self) -> ControllerContext:
        return self._active.context

    # -- taking over --

    async def take_over(self, bump_leader_epochs: bool, bump_restarted: bool) -> None:
        """Watch, read, elect, tell; what was left undone is queued for the worker."""
        active, store = self._active, self._store
        self._last_config_change = max(await self._children(paths.CONFIG_CHANGES, self.configs_changed), default="")
        await asyncio.gather(
            store.children(paths.BROKER_IDS, self.brokers_changed),
            store.children(paths.TOPICS, self.topics_changed),
            self._children(paths.DELETE_TOPICS, self.deletions_changed),
            self._children(paths.ISR_CHANGES, self.isr_changed),
            self._children(paths.LOG_DIR_EVENTS, self.log_dirs_changed),
            store.exists(paths.REASSIGN_PARTITIONS, self.reassignment_changed),
            store.exists(paths.PREFERRED_REPLICA_ELECTION, self.preferred_election_changed),
        )
        loaded = await loading.load(store, self.brokers_changed, self.brokers_changed)
        enabled = self._context.settings.get_bool("delete.topic.enable")
        # A topic that is being reassigned is served until that is done; so are all that may not be deleted.
        kept = [topic for topic in loaded.deleting if not enabled or topic.reassigning]
        image = loaded.image.apply(ImageDelta(topics_created=tuple(kept)))
        active.load(image)
        await self._watch_topics([*image.topics, *(topic.name for topic in loaded.deleting)])
        await active.decide_and_do(lambda context: Plan(requests=(RequestBatch(brokers_changed=True),)))
        await active.decide_and_do(topics.assign_missing_topic_ids)
        restarted = loaded.restarted if bump_restarted else frozenset()
        await active.in_slices(lambda context, names: brokers.take_over(context, names, bump_leader_epochs, restarted))
        if loaded.deleting and enabled:
            await self._begin_deletions([image.topic(topic.name) or topic for topic in loaded.deleting])
        moving = [each.partition for each in reassignments.list_reassignments(self._context.image, None)]
        if moving:
            active.follow_up(
                lambda context: reassignments.complete(context, moving), ControllerState.ALTER_PARTITION_REASSIGNMENT
            )
        for changed in (
            self.deletions_changed,
            self.isr_changed,
            self.log_dirs_changed,
            self.reassignment_changed,
            self.preferred_election_changed,
        ):
            changed(None)

    # -- what watches call --

    def brokers_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("brokers", self.read_brokers, ControllerState.BROKER_CHANGE)

    def topics_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("topics", self._read_topics, ControllerState.TOPIC_CHANGE)

    def topic_changed(self, event: WatchEvent) -> None:
        name = event.path.removeprefix(_TOPIC_PREFIX)
        self._watched_topics.discard(name)
        self._changed_topics[name] = None
        self._active.heard("assignments", self._read_changed_topics, ControllerState.TOPIC_CHANGE)

    def deletions_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("deletions", self._read_deletions, ControllerState.TOPIC_DELETION)

    def isr_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("ISR changes", self._read_isr_changes, ControllerState.ISR_CHANGE)

    def log_dirs_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("log dir events", self._read_log_dir_events, ControllerState.LOG_DIR_CHANGE)

    def reassignment_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("reassignment", self._read_reassignment, ControllerState.ALTER_PARTITION_REASSIGNMENT)

    def preferred_election_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("preferred election", self._read_preferred_election, ControllerState.MANUAL_LEADER_BALANCE)

    def configs_changed(self, event: WatchEvent | None) -> None:
        self._active.heard("configs", self.read_configs, ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE)

    def unclean_elections_enabled(self) -> None:
        """For every topic that does not say otherwise: the broker's settings have changed."""
        self._active.heard(
            "unclean elections",
            lambda: self._active.in_slices(brokers.repair),
            ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE,
        )

    # -- brokers --

    async def read_brokers(self) -> None:
        active = self._active
        found = await loading.load_brokers(self._store, self.brokers_changed, self.brokers_changed)
        changes = brokers.compare(self._context.image.brokers, found)
        if changes.failed:
            _log.info("brokers %s left", list(changes.failed))
            await active.decide_and_do(lambda context: brokers.failed(context, changes.failed))
            await active.in_slices(brokers.repair)
        if changes.started or changes.updated:
            _log.info("brokers %s started, %s changed", list(changes.started), list(changes.updated))
            await active.decide_and_do(lambda context: brokers.registered(context, found))
        if changes.started:
            started = frozenset(changes.started)
            await active.in_slices(lambda context, names: brokers.repair(context, names, started))
            await active.decide_and_do(lambda context: deletion.announced(context, changes.started))
            await active.decide_and_do(deletion.resume)

    async def _read_log_dir_events(self) -> None:
        nodes = await self._notifications(paths.LOG_DIR_EVENTS, self.log_dirs_changed)
        lost = {BrokerId(records.decode_log_dir_event(path, data)): None for path, data in nodes}
        for broker in lost:
            _log.warning("broker %d lost a data directory", broker)
            await self._active.in_slices(
                lambda context, names, broker=broker: brokers.ask_for_log_dirs(context, broker, names)  # type: ignore[misc]
            )
        await self._active.commit_steps(Plan([Remove(path) for path, _ in nodes]))

    # -- topics --

    async def _read_topics(self) -> None:
        names = await self._store.children(paths.TOPICS, self.topics_changed)
        context = self._context
        new = [name for name in names if context.image.topic(name) is None and name not in context.deletions]
        there = frozenset(names)
        gone = [name for name in context.image.topics if name not in there]
        await self._watch_topics(names)
        await self._take_in(new, gone)

    async def _read_changed_topics(self) -> None:
        names = [name for name in self._changed_topics if name not in self._context.deletions]
        self._changed_topics.clear()
        await self._watch_topics(names)
        await self._take_in([name for name in names if self._context.image.topic(name) is not None], [])

    async def _take_in(self, names: Sequence[str], gone: Sequence[str]) -> None:
        """What the store says of these topics now."""
        if not names and not gone:
            return
        active = self._active
        found = await loading.load_topics(self._store, names)
        configs = await self._configs([f"topics/{name}" for name in names])
        whole = [
            topic
            for topic in found
            if (known := self._context.image.topic(topic.name)) is None
            or len(known.partitions) <= len(topic.partitions)
        ]
        for topic in whole:
            if self._context.image.topic(topic.name) is None:
                _log.info("topic %s has come", topic.name)
        if gone:
            await active.decide_and_do(lambda context: topics.found_in_store(context, (), gone))
        for some in slices(whole):
            await active.decide_and_do(partial(topics.found_in_store, found=some), partitions_of(some))
        if configs:
            await active.decide_and_do(lambda context: Plan(delta=ImageDelta(configs_changed=configs)))
        await active.decide_and_do(topics.assign_missing_topic_ids)
        await active.in_slices(brokers.repair, whole)

    async def _read_again(self, path: str) -> None:
        """A write to this node was refused."""
        if path.startswith(_TOPIC_PREFIX):
            name = path.removeprefix(_TOPIC_PREFIX).partition("/")[0]
            found = await loading.load_topics(self._store, [name])
            going = self._context.deletions.get(name)
            if going is None or not going.begun:
                await self._active.decide_and_do(
                    lambda context: topics.found_in_store(context, found, [] if found else [name])
                )
            self.topics_changed(None)
            self._changed_topics[name] = None
            self._active.heard("assignments", self._read_changed_topics, ControllerState.TOPIC_CHANGE)

    async def _watch_topics(self, names: Sequence[str]) -> None:
        new = [name for name in names if name not in self._watched_topics]
        self._watched_topics.update(new)
        for first in range(0, len(new), _WATCHED_AT_A_TIME):
            some = new[first : first + _WATCHED_AT_A_TIME]
            await asyncio.gather(*(self._store.exists(paths.topic(name), self.topic_changed) for name in some))

    async def _read_deletions(self) -> None:
        names = await self._children(paths.DELETE_TOPICS, self.deletions_changed)
        if any(self._unknown(name) for name in names):
            await self._read_topics()
        context = self._context
        unknown = [name for name in names if self._unknown(name)]
        wanted = [topic for name in names if name not in context.deletions and (topic := context.image.topic(name))]
        if not context.settings.get_bool("delete.topic.enable"):
            unknown += [topic.name for topic in wanted]
            wanted = []
        if unknown:
            await self._active.commit_steps(Plan([Remove(paths.deleted_topic(name)) for name in unknown]))
        if wanted:
            await self._begin_deletions(wanted)

    async def _begin_deletions(self, marked: Sequence[TopicImage]) -> None:
        for some in slices(marked):
            await self._active.decide_and_do(partial(deletion.begin, topics=some, mark=False), partitions_of(some))

    def _unknown(self, name: str) -> bool:
        return self._context.image.topic(name) is None and name not in self._context.deletions

    async def _read_isr_changes(self) -> None:
        nodes = await self._notifications(paths.ISR_CHANGES, self.isr_changed)
        changed = list(dict.fromkeys(where for path, data in nodes for where in records.decode_isr_change(path, data)))
        names = [name for name in dict.fromkeys(where.topic for where in changed) if not self._unknown(name)]
        names = [name for name in names if name not in self._context.deletions]
        if names:
            found = await loading.load_topics(self._store, names)
            await self._active.decide_and_do(lambda context: topics.found_in_store(context, found))
            await self._active.decide_and_do(lambda context: reassignments.complete(context, changed))
        await self._active.commit_steps(Plan([Remove(path) for path, _ in nodes]))

    # -- requests through the store --

    async def _read_reassignment(self) -> None:
        """Start what is asked; the node keeps those that are under way, and goes with the last of them."""
        path = paths.REASSIGN_PARTITIONS
        data = await self._read(path, self.reassignment_changed)
        if data is None:
            return
        wanted = records.decode_reassignment(path, data)
        starting = [
            Reassignment(where, replicas)
            for where, replicas in wanted.items()
            if (info := self._context.image.partition(where)) is None or reassignments.target_of(info) != replicas
        ]
        refused: set[TopicPartition] = set()

        def start(context: ControllerContext) -> Plan:
            plan, results = reassignments.alter_reassignments(context, starting)
            refused.update(result.partition for result in results if result.error is not None)
            for result in results:
                if result.error is not None:
                    _log.warning("%s is not reassigned: %s", result.partition, result.error)
            return plan

        if starting:
            await self._active.decide_and_do(start)
        left = {where: replicas for where, replicas in wanted.items() if where not in refused and self._moving(where)}
        if left != wanted:
            step = Put(path, records.encode_reassignment(left)) if left else Remove(path)
            await self._active.commit_steps(Plan([step]))

    def _moving(self, where: TopicPartition) -> bool:
        info = self._context.image.partition(where)
        return info is not None and info.reassigning

    async def _read_preferred_election(self) -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        data = await self._read(path, self.preferred_election_changed)
        if data is None:
            return
        wanted = records.decode_preferred_election(path, data)
        await self._active.decide_and_do(
            lambda context: elections.elect_leaders(context, ElectionType.PREFERRED, wanted)[0]
        )
        await self._active.commit_steps(Plan([Remove(path)]))

    # -- overrides --

    async def read_configs(self) -> None:
        names = await self._children(paths.CONFIG_CHANGES, self.configs_changed)
        new = [f"{paths.CONFIG_CHANGES}/{name}" for name in names if name > self._last_config_change]
        self._last_config_change = max([self._last_config_change, *names])
        entities: dict[str, None] = {}
        for path, node in zip(new, await self._store.get_many(new), strict=True):
            if node is not None:
                try:
                    entities[records.decode_config_change(path, node.data)] = None
                except BadRecordError as problem:
                    _log.warning("a config change cannot be read: %s", problem)
        changed = await self._configs([name for name in entities if name.partition("/")[0] in paths.CONFIG_KINDS])
        if not changed:
            return
        before = self._context
        await self._active.decide_and_do(lambda context: Plan(delta=ImageDelta(configs_changed=changed)))
        after = self._context
        unclean = [
            name
            for entity in changed
            if entity.startswith("topics/")
            and (name := entity.removeprefix("topics/"))
            and unclean_allowed(after, name)
            and not unclean_allowed(before, name)
        ]
        if unclean:
            await self._active.decide_and_do(lambda context: brokers.repair(context, unclean))

    async def _configs(self, entities: Sequence[str]) -> dict[str, dict[str, str]]:
        """Those that are not what is known; of topics, only of those that are there."""
        nodes = await self._store.get_many([paths.config(entity) for entity in entities])
        changed: dict[str, dict[str, str]] = {}
        for entity, node in zip(entities, nodes, strict=True):
            overrides = {} if node is None else records.decode_config(paths.config(entity), node.data)
            if overrides != self._context.image.config(entity):
                changed[entity] = overrides
        return changed

    # -- reading --

    async def _children(self, path: str, watch: Watch) -> list[str]:
        """None where the node is missing: another version of Kafka may not know it."""
        try:
            return await self._store.children(path, watch)
        except NoNodeError:
            return []

    async def _read(self, path: str, watch: Watch) -> bytes | None:
        await self._store.exists(path, watch)
        (node,) = await self._store.get_many([path])
        return None if node is None else node.data

    async def _notifications(self, parent: str, watch: Watch) -> list[tuple[str, bytes]]:
        """Watch, and read what is there, in the order in which it was written."""
        names = await self._children(parent, watch)
        found = [f"{parent}/{name}" for name in names]
        nodes = await self._store.get_many(found)
        return [(path, node.data) for path, node in zip(found, nodes, strict=True) if node is not None]
