"""The rules of access as the store has them: every broker follows /kafka-acl and /kafka-acl-extended, and may write.

Rules about one pattern lie in one node. A write depends on the version that it was decided on, and comes with a
notification by which every broker reads the node again, Apache Kafka's included. What a node says that cannot be read
is not known, so that nobody but super users may use what it is about: `denies_everybody` stands for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from braidlog.broker.authorization.acl_records import (
    CHANGE_DIRECTORIES,
    RESOURCE_TYPES,
    acl_change,
    acl_path,
    changed_pattern,
    decode_acls,
    encode_acls,
    is_name,
    type_path,
)
from braidlog.broker.authorization.authorizer import AclAuthorizer
from braidlog.broker.change_notifications import ChangeNotificationListener
from braidlog.broker.handlers.store_problems import told_to_client
from braidlog.cluster import paths
from braidlog.cluster.records import BadRecordError
from braidlog.cluster.store import (
    BadVersionError,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    RequestTooLargeError,
    SessionExpiredError,
    SetData,
    StoreConnectionError,
    UnknownOutcomeError,
    ensure_path,
)
from braidlog.controller.direct_writes import purge_notices
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError, RequestTimedOutError
from braidlog.core.tasks import Tasks
from braidlog.core.time_slice import TimeSlice
from braidlog.security.acls import (
    WILDCARD_PRINCIPAL,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    AclRules,
    PatternType,
    Permission,
    ResourcePattern,
    in_words,
    in_words_of,
)

log = logging.getLogger("braidlog.security")

# Every broker of a cluster may write the same node at the same time; one of them succeeds each time.
_ATTEMPTS: Final = 20

Changes = Mapping[ResourcePattern, frozenset[Acl]]


class AclStore:
    """Keeps the authorizer's rules as the store's are, and changes these."""

    def __init__(self, store: CoordinationStore, authorizer: AclAuthorizer, clock: Clock, tasks: Tasks) -> None:
        self._store = store
        self._authorizer = authorizer
        self._clock = clock
        # Told of every session by the broker's client of the store.
        self.listeners = (LiteralAcls(store, tasks, self._changed), PrefixedAcls(store, tasks, self._changed))
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        for pattern_type, directory in CHANGE_DIRECTORIES.items():
            await ensure_path(self._store, directory)
            for resource_type in RESOURCE_TYPES:
                await ensure_path(self._store, type_path(pattern_type, resource_type))
        for each in self.listeners:
            await each.start()

    async def catch_up(self) -> None:
        """Once this returns, decisions are by every rule that was in the store when it was called."""
        for each in self.listeners:
            await each.catch_up()

    @property
    def rules(self) -> AclRules:
        """As this broker decides by them now; they do not change under who reads them."""
        return self._authorizer.rules

    def _changed(self, changes: Changes) -> None:
        """What is read again is often as it was: then decisions need not be forgotten."""
        rules = self.rules
        new = {pattern: acls for pattern, acls in changes.items() if acls != frozenset(rules.about(pattern))}
        if new:
            self._authorizer.rules = rules.replacing(new)

    async def create(self, acls: Sequence[Acl]) -> list[ProtocolError | None]:
        """The outcome of each; those about one pattern are written together."""
        by_pattern: dict[ResourcePattern, set[Acl]] = {}
        for acl in acls:
            by_pattern.setdefault(acl.pattern, set()).add(acl)
        failed: dict[ResourcePattern, ProtocolError] = {}
        async with self._one_at_a_time:
            for pattern, wanted in by_pattern.items():
                error = await self._try(pattern, lambda current, wanted=wanted: current | wanted)  # type: ignore[misc]
                if error is not None:
                    failed[pattern] = error
            await self._follow_writes()
        return [failed.get(acl.pattern) for acl in acls]

    async def delete(self, filters: Sequence[AclFilter]) -> list[dict[Acl, ProtocolError | None]]:
        """What each filter found and no earlier one, and whether that is gone."""
        found: list[dict[Acl, ProtocolError | None]] = [{} for _ in filters]
        async with self._one_at_a_time:
            with told_to_client():
                # What another broker has answered is in the store, and may not be known here yet.
                await self._store.sync()
                await self.catch_up()
            for pattern, indexes in (await self._concerned(filters)).items():
                matched: dict[Acl, int] = {}

                def left(
                    current: frozenset[Acl], indexes: list[int] = indexes, matched: dict[Acl, int] = matched
                ) -> frozenset[Acl]:
                    for acl in current:
                        index = next((each for each in indexes if filters[each].matches(acl)), None)
                        if index is not None:
                            matched[acl] = index
                    return current - matched.keys()

                error = await self._try(pattern, left)
                for acl, index in matched.items():
                    found[index][acl] = error
            await self._follow_writes()
        return found

    async def _concerned(self, filters: Sequence[AclFilter]) -> dict[ResourcePattern, list[int]]:
        """What there are rules about that filters may mean, and the places of those filters.

        Others run in between: the rules that are walked here do not change, and each is read again before it is
        deleted.
        """
        of_pattern: dict[tuple[int, str | None, int], list[int]] = {}
        others: list[int] = []
        for index, each in enumerate(filters):
            is_exact = each.pattern_type in CHANGE_DIRECTORIES and each.resource_name is not None
            if is_exact and each.resource_type != AclResourceType.ANY:
                key = (each.resource_type, each.resource_name, each.pattern_type)
                of_pattern.setdefault(key, []).append(index)
            else:
                others.append(index)
        found: dict[ResourcePattern, list[int]] = {}
        time_slice = TimeSlice()
        for pattern in self.rules.patterns():
            await time_slice.yield_if_over()
            wide = [index for index in others if filters[index].matches_pattern(pattern)]
            exact = of_pattern.get(pattern, [])
            if wide or exact:
                found[pattern] = sorted(wide + exact)
        return found

    async def _try(
        self, pattern: ResourcePattern, decide: Callable[[frozenset[Acl]], frozenset[Acl]]
    ) -> ProtocolError | None:
        try:
            with told_to_client():
                await self._write(pattern, decide)
        except ProtocolError as error:
            return error
        return None

    async def _write(self, pattern: ResourcePattern, decide: Callable[[frozenset[Acl]], frozenset[Acl]]) -> None:
        """Write what is decided of the rules as the store has them."""
        for _ in range(_ATTEMPTS):
            (node,) = await self._store.get_many([acl_path(pattern)])
            current, unreadable = _read(pattern, node)
            wanted = decide(current)
            if wanted == current:
                return
            if wanted and unreadable:
                raise InvalidRequestError(
                    f"rules can be added once the present ones can be read, or are removed: {unreadable}"
                )
            change: Operation
            if node is None:
                change = Create(acl_path(pattern), encode_acls(sorted(wanted)))
            elif wanted:
                change = SetData(acl_path(pattern), encode_acls(sorted(wanted)), node.stat.version)
            else:
                change = Delete(acl_path(pattern), node.stat.version)
            self._store.lease.check()
            try:
                await self._store.multi([change, acl_change(pattern)])
            except (BadVersionError, NodeExistsError, NoNodeError, UnknownOutcomeError):
                # Whether it was this broker or another one, the store now says what to decide on.
                await self._store.sync()
                continue
            except RequestTooLargeError as problem:
                raise InvalidRequestError(
                    f"{len(wanted)} rules about one resource are too many: {problem}"
                ) from problem
            for acl in sorted(wanted - current):
                log.info("added rule: %s", in_words(acl))
            for acl in sorted(current - wanted):
                log.info("removed rule: %s", in_words(acl))
            return
        raise RequestTimedOutError("the same rules were changed again and again by others; try again")

    async def _follow_writes(self) -> None:
        """Whoever asks this broker next meets the new rules."""
        with told_to_client():
            await self.catch_up()
        try:
            for directory in CHANGE_DIRECTORIES.values():
                await purge_notices(self._store, directory, self._clock)
        except (StoreConnectionError, SessionExpiredError) as problem:
            log.warning("old notifications of rules stay for now: %s", problem)


class PatternAcls(ChangeNotificationListener):
    """Follows the rules about patterns of one type."""

    pattern_type: ClassVar[PatternType]

    def __init__(self, store: CoordinationStore, tasks: Tasks, changed: Callable[[Changes], None]) -> None:
        super().__init__(store, tasks)
        self._changed_rules = changed
        self._known: set[ResourcePattern] = set()

    async def _load(self) -> None:
        patterns: list[ResourcePattern] = []
        for resource_type in RESOURCE_TYPES:
            names = await self._store.children(type_path(self.pattern_type, resource_type))
            patterns += (ResourcePattern(resource_type, name, self.pattern_type) for name in names)
        gone = dict.fromkeys(self._known.difference(patterns), frozenset[Acl]())
        await self._take(patterns, gone)
        self._known = set(patterns)

    async def _read_changed(self, notifications: Mapping[str, bytes]) -> None:
        try:
            # A dict as an ordered set.
            patterns = list(dict.fromkeys(changed_pattern(path, data) for path, data in notifications.items()))
        except BadRecordError as problem:
            log.error("a notification says of no rule that it changed, so that all are read again: %s", problem)
            await self._load()
            return
        await self._take(patterns, {})
        self._known.update(patterns)

    async def _take(self, patterns: Sequence[ResourcePattern], others: Changes) -> None:
        readable = [pattern for pattern in patterns if is_name(pattern.name)]
        nodes = await self._store.get_many([acl_path(pattern) for pattern in readable])
        found: dict[ResourcePattern, tuple[frozenset[Acl], BadRecordError | None]] = {}
        # Safe with others in between: nothing else reads nodes of this listener meanwhile.
        time_slice = TimeSlice()
        for pattern, node in zip(readable, nodes, strict=True):
            found[pattern] = _read(pattern, node)
            await time_slice.yield_if_over()
        for pattern in set(patterns).difference(readable):
            # Another broker wrote it: ZooKeeper takes some characters that no path has here.
            problem = BadRecordError(repr(acl_path(pattern)), "no node is named so here")
            found[pattern] = frozenset({denies_everybody(pattern)}), problem
        for pattern, (_, unreadable) in found.items():
            if unreadable:
                log.error(
                    "only super users may use %s, as its rules cannot be read: %s; or remove them with "
                    "`braidlog acls remove` and add them again",
                    in_words_of(pattern),
                    unreadable,
                )
        self._changed_rules({**others, **{pattern: acls for pattern, (acls, _) in found.items()}})


class LiteralAcls(PatternAcls):
    pattern_type = PatternType.LITERAL
    notifications_path = paths.LITERAL_ACL_CHANGES
    subject = "ACLs of single names"


class PrefixedAcls(PatternAcls):
    pattern_type = PatternType.PREFIXED
    notifications_path = paths.PREFIXED_ACL_CHANGES
    subject = "ACLs of prefixes"


def denies_everybody(pattern: ResourcePattern) -> Acl:
    """What a node counts as that cannot be read; it can be seen and removed like any rule."""
    return Acl(
        pattern.resource_type,
        pattern.name,
        WILDCARD_PRINCIPAL,
        AclOperation.ALL,
        Permission.DENY,
        pattern_type=pattern.pattern_type,
    )


def _read(pattern: ResourcePattern, node: Node | None) -> tuple[frozenset[Acl], BadRecordError | None]:
    """The rules of a node, and why it cannot be read where that is so."""
    if node is None:
        return frozenset(), None
    try:
        return decode_acls(pattern, node.data), None
    except BadRecordError as problem:
        return frozenset({denies_everybody(pattern)}), problem
