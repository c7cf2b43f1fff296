"""What any broker writes into the store by itself: config overrides, SCRAM users, client quotas, topics created on
first use.

Nothing here is fenced by the controller epoch. Each write depends on the versions of the nodes that it was decided on,
and is decided again where one of them has changed meanwhile. Overrides come with a notification under /config/changes,
by which every broker reads them again; for topics only the assignment is written, the controller elects the leaders.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage, ImageDelta, user_entity
from braidlog.cluster.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    CoordinationStore,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    StoreError,
    ensure_path,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller import configs, topics
from braidlog.controller.plan import ControllerContext, Plan, Put, Remove, Step
from braidlog.controller.requests import (
    ConfigChanges,
    ConfigResource,
    ConfigResult,
    FullConfig,
    NewTopic,
    NewTopicResult,
    ResourceType,
    pieces,
)
from braidlog.controller.users import client_quotas, scram_credentials
from braidlog.controller.users.client_quotas import EntityChanges
from braidlog.controller.users.scram_credentials import UserChanges
from braidlog.core.clock import Clock
from braidlog.core.ids import random_id
from braidlog.core.protocol_errors import ProtocolError, RequestTimedOutError, TopicAlreadyExistsError

R = TypeVar("R", FullConfig, ConfigChanges)

_ATTEMPTS: Final = 5
# Resources in one transaction: others' requests are served in between.
_RESOURCES_IN_A_PIECE: Final = 50
_ENTRIES_IN_A_PIECE: Final = 500
# More than a piece of a request adds, so that they do not pile up.
_NOTICES_PURGED_AT_ONCE: Final = 2 * _RESOURCES_IN_A_PIECE
_NOTICES_KEPT_MS: Final = 15 * 60 * 1000


class DirectWrites:
    """`image` is what this broker knows of brokers and topics; overrides are read from the store each time."""

    def __init__(
        self,
        store: Callable[[], CoordinationStore],
        image: Callable[[], ClusterImage],
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        rng: random.Random,
        new_id: Callable[[], bytes] = random_id,
    ) -> None:
        self._store = store
        self._image = image
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._new_id = new_id
        # As `ControllerContext` has it; set where there are listeners that new settings may not suit.
        self.check_broker_overrides: Callable[[str, Mapping[str, str]], None] | None = None

    async def alter_configs(self, requests: Sequence[FullConfig], validate_only: bool = False) -> list[ConfigResult]:
        """Replace the overrides of each resource."""
        return await self._alter(requests, lambda request: len(request.entries), configs.alter, validate_only)

    async def incremental_alter_configs(
        self, requests: Sequence[ConfigChanges], validate_only: bool = False
    ) -> list[ConfigResult]:
        return await self._alter(
            requests, lambda request: len(request.changes), configs.alter_incrementally, validate_only
        )

    async def alter_scram_credentials(self, requests: Sequence[UserChanges]) -> dict[str, ProtocolError | None]:
        """What became of each user's changes."""
        results: dict[str, ProtocolError | None] = {}
        for piece in pieces(requests, lambda each: len(each.changes), _RESOURCES_IN_A_PIECE, _ENTRIES_IN_A_PIECE):
            results.update(await self._alter_users(piece))
        if any(error is None for error in results.values()):
            await purge_notices(self._store(), paths.CONFIG_CHANGES, self._clock)
        return results

    async def _alter_users(self, requests: Sequence[UserChanges]) -> dict[str, ProtocolError | None]:
        store = self._store()
        entities = [user_entity(each.user) for each in requests if each.user]
        for _ in range(_ATTEMPTS):
            current, versions = await self._read(store, entities)
            steps, results = scram_credentials.alter(current, requests)
            if not steps:
                return results
            try:
                await self._commit(store, steps, versions)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return results
        raise RequestTimedOutError("the same users were changed again and again by others; try again")

    async def alter_client_quotas(
        self, requests: Sequence[EntityChanges], validate_only: bool = False
    ) -> list[ProtocolError | None]:
        """What became of each entity's changes, in their order."""
        results: list[ProtocolError | None] = []
        for piece in pieces(requests, lambda each: len(each.changes), _RESOURCES_IN_A_PIECE, _ENTRIES_IN_A_PIECE):
            results += await self._alter_quotas(piece, validate_only)
        if not validate_only and None in results:
            await purge_notices(self._store(), paths.CONFIG_CHANGES, self._clock)
        return results

    async def _alter_quotas(self, requests: Sequence[EntityChanges], validate_only: bool) -> list[ProtocolError | None]:
        store = self._store()
        entities: dict[str, None] = {}
        parents: dict[str, None] = {}
        for each in requests:
            try:
                entity = client_quotas.entity_named(dict(each.names))
            except ProtocolError:
                continue  # `alter` says so in its result
            entities[entity.path] = None
            parents[paths.config(entity.path.rpartition("/")[0])] = None
        for _ in range(_ATTEMPTS):
            current, versions = await self._read(store, list(entities))
            steps, results = client_quotas.alter(current, requests, validate_only)
            if not steps:
                return results
            for parent in parents:
                # `/config/users/U/clients` is there from the first quota of the user's clients on.
                await ensure_path(store, parent)
            try:
                await self._commit(store, steps, versions)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return results
        raise RequestTimedOutError("the same quotas were changed again and again by others; try again")

    async def create_topics(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[NewTopicResult]:
        """Write the assignments of new topics. Their leaders are elected by the controller, a little later."""
        if validate_only:
            return topics.create_topics(self._context(self._image()), requests, True)[1]
        store = self._store()
        for _ in range(_ATTEMPTS):
            plan, results = topics.assign_topics(self._context(self._image()), requests)
            if not plan.steps:
                return results
            try:
                await self._commit(store, plan.steps, None)
            except NodeExistsError as taken:
                # Another broker was faster with one of them; the others are still to be made.
                name = taken.path.rpartition("/")[2]
                rest = [request for request in requests if request.name != name]
                if len(rest) == len(requests) or not taken.path.startswith(paths.TOPICS):
                    continue
                others = {result.name: result for result in (await self.create_topics(rest) if rest else [])}
                exists = TopicAlreadyExistsError(f"Topic '{name}' already exists.")
                return [others.get(request.name) or NewTopicResult(request.name, exists) for request in requests]
            except (BadVersionError, NoNodeError):
                continue
            return results
        raise RequestTimedOutError("the store changed again and again while topics were created; try again")

    async def _alter(
        self,
        requests: Sequence[R],
        size_of: Callable[[R], int],
        decide: Callable[
            [ControllerContext, Sequence[R], bool, Mapping[ConfigResource, int] | None],
            tuple[Plan, list[ConfigResult]],
        ],
        validate_only: bool,
    ) -> list[ConfigResult]:
        times = Counter(request.resource for request in requests)
        results: list[ConfigResult] = []
        written = False
        for piece in pieces(requests, size_of, _RESOURCES_IN_A_PIECE, _ENTRIES_IN_A_PIECE):
            try:
                some, wrote = await self._alter_piece(piece, decide, times, validate_only)
            except ProtocolError as error:
                if not results:
                    raise
                some, wrote = [ConfigResult(request.resource, error) for request in piece], False
            results += some
            written = written or wrote
        if written:
            await purge_notices(self._store(), paths.CONFIG_CHANGES, self._clock)
        return results

    async def _alter_piece(
        self,
        requests: Sequence[R],
        decide: Callable[
            [ControllerContext, Sequence[R], bool, Mapping[ConfigResource, int] | None],
            tuple[Plan, list[ConfigResult]],
        ],
        times: Mapping[ConfigResource, int],
        validate_only: bool,
    ) -> tuple[list[ConfigResult], bool]:
        """The results, and whether something was written."""
        store = self._store()
        for _ in range(_ATTEMPTS):
            image = self._image()
            current, versions = await self._read(store, self._entities(image, requests))
            context = self._context(image.apply(ImageDelta(configs_changed=current)))
            plan, results = decide(context, requests, validate_only, times)
            if not plan.steps:
                return results, False
            if any(isinstance(step, Put) and step.path.startswith(f"{paths.GROUP_CONFIGS}/") for step in plan.steps):
                await ensure_path(store, paths.GROUP_CONFIGS)
            try:
                await self._commit(store, plan.steps, versions)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            return results, True
        raise RequestTimedOutError("the same configs were changed again and again by others; try again")

    def _entities(self, image: ClusterImage, requests: Sequence[R]) -> list[str]:
        found: list[str] = []
        for request in requests:
            try:
                found.append(configs.entity_of(self._context(image), request.resource))
            except ProtocolError:
                continue  # `decide` says so in its result
        return list(dict.fromkeys(found))

    async def _read(
        self, store: CoordinationStore, entities: Sequence[str]
    ) -> tuple[dict[str, Mapping[str, str]], dict[str, int]]:
        """Overrides, and the version of each node that is there."""
        nodes = await store.get_many([paths.config(entity) for entity in entities])
        current: dict[str, Mapping[str, str]] = {}
        versions: dict[str, int] = {}
        for entity, node in zip(entities, nodes, strict=True):
            current[entity] = {} if node is None else records.decode_config(paths.config(entity), node.data)
            if node is not None:
                versions[paths.config(entity)] = node.stat.version
        return current, versions

    async def _commit(
        self, store: CoordinationStore, steps: Sequence[Step], versions: Mapping[str, int] | None
    ) -> None:
        """Put and Remove hold only for the versions that were read; a topic with overrides must be there.

        Without versions whatever lies at the path of a Put is replaced.
        """
        known = versions
        if known is None:
            puts = [step.path for step in steps if isinstance(step, Put)]
            nodes = await store.get_many(puts)
            known = {path: node.stat.version for path, node in zip(puts, nodes, strict=True) if node is not None}
        operations: list[Operation] = []
        created = {step.path for step in steps if isinstance(step, Create)}
        prefix = f"{paths.CONFIG}/{ResourceType.TOPIC.name.lower()}s/"
        for step in steps:
            if isinstance(step, Put | Remove):
                topic = paths.topic(step.path.removeprefix(prefix))
                if step.path.startswith(prefix) and topic not in created:
                    operations.append(Check(topic, ANY_VERSION))
            if isinstance(step, Put):
                version = known.get(step.path)
                put = Create(step.path, step.data) if version is None else SetData(step.path, step.data, version)
                operations.append(put)
            elif isinstance(step, Remove):
                if step.path in known:
                    operations.append(Delete(step.path, known[step.path]))
            else:
                operations.append(step)
        store.lease.check()
        await store.multi(operations)

    def _context(self, image: ClusterImage) -> ControllerContext:
        return ControllerContext(
            image,
            0,
            self._settings(),
            self._rng,
            self._new_id,
            check_broker_overrides=self.check_broker_overrides,
        )


async def purge_notices(store: CoordinationStore, directory: str, clock: Clock) -> None:
    """Change notices are only news for a while."""
    oldest = clock.wall_ms() - _NOTICES_KEPT_MS
    # Their names are numbered.
    first = heapq.nsmallest(_NOTICES_PURGED_AT_ONCE, await store.children(directory))
    names = [f"{directory}/{name}" for name in first]
    found = await store.get_many(names)
    old = [path for path, node in zip(names, found, strict=True) if node and node.stat.ctime_ms < oldest]
    try:
        if old:
            await store.multi([Delete(path) for path in old])
    except StoreError:
        return  # another broker does the same right now
