"""The controller of the cluster: one queue and one worker that decide, commit to the store, and publish the image.

    request -> queue -> decide (pure, on the newest image) -> one store transaction -> listeners -> image -> answer

What queued up meanwhile is decided together, each on the image the one before leaves, and committed as one
transaction: a burst of auto-created topics costs a few syncs, not one each. A request with very many items is cut into
pieces, so that neither others' requests nor the rest of the broker wait for the whole of it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from braidlog.cluster import loading, paths
from braidlog.cluster.image import ClusterImage, ImageDelta, ImageListener, TopicImage
from braidlog.cluster.store import (
    CoordinationStore,
    Delete,
    SessionExpiredError,
    StoreError,
    StoreFailedError,
    WatchEvent,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller import configs, elections, reassignments, topics
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.plan import ControllerContext, Plan, Step
from braidlog.controller.requests import (
    ConfigChanges,
    ConfigResult,
    DeletedTopicResult,
    FullConfig,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    OngoingReassignment,
    PartitionResult,
    Reassignment,
    TopicRef,
    TopicResult,
)
from braidlog.core.clock import Clock
from braidlog.core.ids import random_id
from braidlog.core.protocol_errors import KafkaStorageError, NotControllerError, ProtocolError, UnknownServerError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, TopicPartition

R = TypeVar("R")
T = TypeVar("T")

# What one transaction may hold and how long decisions for it may take: the broker serves no other request meanwhile.
_STEPS_IN_A_BATCH: Final = 1_500
_DECIDING_S: Final = 0.005
# A request with more items than this, or more partitions in them, is cut into pieces that queue one after the other.
_ITEMS_IN_A_PIECE: Final = 50
_PARTITIONS_IN_A_PIECE: Final = 500
# More than a piece of a request adds, so that they do not pile up.
_NOTICES_PURGED_AT_ONCE: Final = 2 * _ITEMS_IN_A_PIECE
_NOTICES_KEPT_MS: Final = 15 * 60 * 1000
# How long to wait before the nodes of deleted topics are removed again, where that failed.
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 30.0

_log = logging.getLogger("braidlog.controller")


class _Event:
    __slots__ = ("answer", "decide")

    def __init__(self, decide: Callable[[ControllerContext], tuple[Plan, Any]], answer: asyncio.Future[Any]) -> None:
        self.decide = decide
        self.answer = answer

    def succeed(self, result: object) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Controller:
    """Start it after the broker is registered; every call below waits for its turn in the one queue.

    Results come in the order asked. A result is given once the change is durable and every listener has applied it.
    """

    def __init__(
        self,
        store: CoordinationStore,
        broker_id: BrokerId,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        rng: random.Random,
        new_id: Callable[[], bytes] = random_id,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._new_id = new_id
        self._image = ClusterImage()
        self._listeners: list[ImageListener] = []
        # None while this broker is not the controller.
        self._fenced_store: FencedStore | None = None
        self._queue: deque[_Event] = deque()
        # By name: deleted topics whose nodes are still in the store, because the disk had no room for the removal.
        self._unremoved: dict[str, TopicImage] = {}
        self._wake = asyncio.Event()
        self._tasks = Tasks("controller")
        self._worker: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        return self._image

    def add_listener(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    async def start(self, *, bump_leader_epochs: bool = False) -> None:
        """Become the controller, load the image, finish what was left undone, publish everything as one delta.

        Pass `bump_leader_epochs` after an unclean stop (see `elections.take_over`).
        """
        self._fenced_store = await FencedStore.elect(self._store, self._broker_id, self._clock.wall_ms())
        loaded = await loading.load(self._store, self._brokers_changed)
        image = loaded.image
        for decide in (
            topics.assign_missing_topic_ids,
            partial(elections.take_over, bump_leader_epochs=bump_leader_epochs),
        ):
            plan = decide(self._context(image))
            if plan.steps:
                await self._commit(plan.steps)
                image = image.apply(plan.delta)
        await self._publish(
            image,
            ImageDelta(
                topics_created=tuple(image.topics.values()),
                topics_deleted=loaded.deleting,
                configs_changed=dict(image.configs.items()),
                brokers=image.brokers,
                controller_id=image.controller_id,
            ),
        )
        await self._remove_nodes(loaded.deleting)
        self._worker = self._tasks.spawn("worker", self._work())

    async def stop(self) -> None:
        """Finish the change at hand, refuse those still queued."""
        self._fenced_store = None
        self._wake.set()
        if self._worker is not None:
            await self._worker
            self._worker = None
        await self._tasks.close()

    async def create_topics(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[NewTopicResult]:
        times = Counter(request.name for request in requests)
        results: list[NewTopicResult] = []
        already = 0

        def decide(context: ControllerContext, piece: Sequence[NewTopic]) -> tuple[Plan, list[NewTopicResult]]:
            return topics.create_topics(context, piece, validate_only, times, already)

        async for some in self._ask_in_pieces(
            _pieces(requests, lambda request: max(request.partitions, len(request.assignments))),
            decide,
            lambda request, error: NewTopicResult(request.name, error),
        ):
            results += some
            already += sum(result.partitions for result in some if result.error is None)
        return results

    async def delete_topics(self, requests: Sequence[TopicRef]) -> list[DeletedTopicResult]:
        times = topics.times_named(self._image, requests)
        results: list[DeletedTopicResult] = []
        async for some in self._ask_in_pieces(
            _pieces(requests, self._partitions_of),
            lambda context, piece: topics.delete_topics(context, piece, times),
            lambda ref, error: DeletedTopicResult(ref.name, ref.topic_id, error),
        ):
            results += some
        return results

    def _partitions_of(self, ref: TopicRef) -> int:
        topic = topics.find(self._image, ref)
        return 0 if topic is None else len(topic.partitions)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[TopicResult]:
        times = Counter(request.topic for request in requests)
        results: list[TopicResult] = []
        already = 0

        def decide(context: ControllerContext, piece: Sequence[NewPartitions]) -> tuple[Plan, list[TopicResult]]:
            return topics.add_partitions(context, piece, validate_only, times, already)

        async for some in self._ask_in_pieces(
            _pieces(requests, lambda request: request.count),
            decide,
            lambda request, error: TopicResult(request.topic, error),
        ):
            results += some
            already += sum(result.added for result in some)
        return results

    async def alter_configs(self, requests: Sequence[FullConfig], validate_only: bool = False) -> list[ConfigResult]:
        times = Counter(request.resource for request in requests)
        results: list[ConfigResult] = []
        async for some in self._ask_in_pieces(
            _pieces(requests, lambda request: len(request.entries)),
            lambda context, piece: configs.alter(context, piece, validate_only, times),
            lambda request, error: ConfigResult(request.resource, error),
        ):
            results += some
        return results

    async def incremental_alter_configs(
        self, requests: Sequence[ConfigChanges], validate_only: bool = False
    ) -> list[ConfigResult]:
        times = Counter(request.resource for request in requests)
        results: list[ConfigResult] = []
        async for some in self._ask_in_pieces(
            _pieces(requests, lambda request: len(request.changes)),
            lambda context, piece: configs.alter_incrementally(context, piece, validate_only, times),
            lambda request, error: ConfigResult(request.resource, error),
        ):
            results += some
        return results

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionResult]:
        """None elects for every partition that needs it and answers only for those."""
        return await self._ask(lambda context: elections.elect_leaders(context, election_type, partitions))

    async def alter_reassignments(self, requests: Sequence[Reassignment]) -> list[PartitionResult]:
        return await self._ask(lambda context: reassignments.alter_reassignments(context, requests))

    def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> list[OngoingReassignment]:
        return reassignments.list_reassignments(self._image, partitions)

    # -- the queue --

    async def _ask(self, decide: Callable[[ControllerContext], tuple[Plan, T]]) -> T:
        if self._fenced_store is None:
            raise NotControllerError("this broker is not the controller")
        event = _Event(decide, asyncio.get_running_loop().create_future())
        self._queue.append(event)
        self._wake.set()
        return cast(T, await event.answer)

    async def _ask_in_pieces(
        self,
        pieces: Iterable[Sequence[R]],
        decide: Callable[[ControllerContext, Sequence[R]], tuple[Plan, list[T]]],
        failed: Callable[[R, ProtocolError], T],
    ) -> AsyncIterator[list[T]]:
        """The results of each piece. Where one fails after others were done, its items alone have the error."""
        done = False
        for piece in pieces:
            try:
                results = await self._ask(lambda context, piece=piece: decide(context, piece))  # type: ignore[misc]
            except ProtocolError as error:
                if not done:
                    raise
                results = [failed(request, error) for request in piece]
            done = True
            yield results

    async def _work(self) -> None:
        while self._fenced_store is not None:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and self._fenced_store is not None:
                await self._guarded(self._handle_some())
                # Where nothing was to be written, nothing else has let others run.
                await asyncio.sleep(0)
        while self._queue:
            self._queue.popleft().fail(NotControllerError("the controller is stopping"))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """A bug in one change must not end the worker."""
        try:
            await work
        except Exception:
            _log.exception("a change failed in the controller; the next ones go on")

    async def _handle_some(self) -> None:
        """Decide what is queued, commit it as one transaction, publish each change, answer."""
        await self._remove_nodes(())
        events = self._take_batch()
        try:
            decided = await self._decide_and_commit(events)
        except Exception as problem:
            error = _as_protocol_error(problem)
            for event in events:
                event.fail(error)
            if not isinstance(problem, ProtocolError | StoreError | StoreFailedError | SessionExpiredError):
                raise
            return
        for event, plan, result, image in decided:
            if not plan.delta.empty:
                await self._publish(image, plan.delta)
            await self._remove_nodes(plan.delta.topics_deleted)
            if plan.delta.configs_changed:
                await self._guarded(self._purge_notices())
            event.succeed(result)

    async def _remove_nodes(self, deleted: Sequence[TopicImage]) -> None:
        """Of topics whose logs are gone: these, and those whose nodes could not be removed before.

        Until it works the topics cannot be created again; it is tried before each change and from time to time.
        """
        first_failure = not self._unremoved
        self._unremoved.update((topic.name, topic) for topic in deleted)
        if not self._unremoved:
            return
        try:
            for steps in topics.forget_topics(list(self._unremoved.values())):
                await self._commit(steps)
            self._unremoved.clear()
        except (StoreError, StoreFailedError, SessionExpiredError, NotControllerError) as problem:
            if first_failure:
                _log.warning("deleted topics stay in the store for now, the removal is tried again: %s", problem)
                self._tasks.spawn("removing deleted topics", self._retry_removal())

    async def _retry_removal(self) -> None:
        """Wake the worker, which alone changes the store, until it has removed what is left."""
        wait_s = _FIRST_RETRY_S
        while self._unremoved and self._fenced_store is not None:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_RETRY_S)
            with suppress(NotControllerError):
                await self._ask(lambda context: (Plan(), None))

    def _take_batch(self) -> list[_Event]:
        events = list(self._queue)
        self._queue.clear()
        return events

    async def _decide_and_commit(self, events: list[_Event]) -> list[tuple[_Event, Plan, Any, ClusterImage]]:
        """Decide again, once, on what the store says if it turns out to be newer than our image."""
        for attempt in (1, 2):
            decided, rest = self._decide([event for event in events if not event.answer.done()])
            steps = [step for _, plan, _, _ in decided for step in plan.steps]
            try:
                if steps:
                    await self._commit(steps)
            except StoreError as refusal:
                if attempt == 2:
                    raise
                _log.warning("the store is newer than the controller's image (%s); reading it again", refusal)
                await self._reload()
                continue
            self._queue.extendleft(reversed(rest))
            return decided
        raise AssertionError("the second attempt returns or raises")

    def _decide(self, events: list[_Event]) -> tuple[list[tuple[_Event, Plan, Any, ClusterImage]], list[_Event]]:
        """Plans for the first events, and the events that have to wait for the next transaction."""
        image = self._image
        decided: list[tuple[_Event, Plan, Any, ClusterImage]] = []
        size = 0
        until = self._clock.monotonic() + _DECIDING_S
        for place, event in enumerate(events):
            try:
                plan, result = event.decide(self._context(image))
            except ProtocolError as error:
                event.fail(error)
                continue
            except Exception as bug:
                event.fail(_as_protocol_error(bug))
                _log.exception("a decision of the controller failed")
                continue
            image = image.apply(plan.delta)
            decided.append((event, plan, result, image))
            size += len(plan.steps)
            # The nodes of a deleted topic must be gone before another of its name can be created.
            if plan.delta.topics_deleted or size > _STEPS_IN_A_BATCH or self._clock.monotonic() >= until:
                return decided, events[place + 1 :]
        return decided, []

    def _context(self, image: ClusterImage) -> ControllerContext:
        if self._fenced_store is None:
            raise NotControllerError("this broker is not the controller")
        return ControllerContext(
            image, self._fenced_store.epoch, self._settings(), self._rng, self._new_id, frozenset(self._unremoved)
        )

    async def _commit(self, steps: Sequence[Step]) -> None:
        if self._fenced_store is None:
            raise NotControllerError("this broker is not the controller")
        try:
            await self._fenced_store.commit(steps)
        except NotControllerError:
            self._fenced_store = None
            self._wake.set()
            raise

    async def _publish(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Listeners first: once handlers see a topic, its logs are there."""
        for listener in self._listeners:
            try:
                await listener.image_changed(image, delta)
            except Exception:
                _log.exception("a listener could not apply a change of the cluster")
        self._image = image

    async def _reload(self) -> None:
        before = self._image
        image = (await loading.load(self._store, self._brokers_changed)).image
        await self._publish(image, before.difference(image))

    def _brokers_changed(self, event: WatchEvent) -> None:
        if self._fenced_store is not None:
            self._tasks.spawn("reading the brokers", self.read_brokers())

    async def read_brokers(self) -> None:
        """Take over how the brokers are registered now: when one came or went, or changed its addresses."""
        with suppress(NotControllerError, SessionExpiredError):
            brokers = await loading.load_brokers(self._store, self._brokers_changed)
            await self._ask(lambda context: (Plan(delta=ImageDelta(brokers=brokers)), None))

    async def _purge_notices(self) -> None:
        """Config change notices are only news for a while."""
        oldest = self._clock.wall_ms() - _NOTICES_KEPT_MS
        # Their names are numbered.
        first = heapq.nsmallest(_NOTICES_PURGED_AT_ONCE, await self._store.children(paths.CONFIG_CHANGES))
        names = [f"{paths.CONFIG_CHANGES}/{name}" for name in first]
        found = await self._store.get_many(names)
        old = [
            Delete(path)
            for path, node in zip(names, found, strict=True)
            if node is not None and node.stat.ctime_ms < oldest
        ]
        if old:
            await self._store.multi(old)


def _pieces(requests: Sequence[R], size_of: Callable[[R], int]) -> Iterator[Sequence[R]]:
    """At least one: also a request for nothing is answered in its turn."""
    piece: list[R] = []
    size = 0
    for request in requests:
        each = max(size_of(request), 0)
        if piece and (len(piece) == _ITEMS_IN_A_PIECE or size + each > _PARTITIONS_IN_A_PIECE):
            yield piece
            piece, size = [], 0
        piece.append(request)
        size += each
    yield piece


def _as_protocol_error(problem: Exception) -> ProtocolError:
    if isinstance(problem, ProtocolError):
        return problem
    if isinstance(problem, SessionExpiredError):
        return NotControllerError("the session with the coordination store is over")
    if isinstance(problem, StoreFailedError):
        return KafkaStorageError(str(problem))
    return UnknownServerError(f"the controller could not do this: {problem}")
