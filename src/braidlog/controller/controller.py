"""Which broker is the controller, and what the others of this broker ask of it.

    watch /controller -> claim it and raise the epoch -> take over -> in office -> resign, or the session is lost
                      -> another broker was faster: NotControllerError until /controller changes

`active_controller` does the work of a controller in office; here are its election and its end. Whatever ends it drops
everything it knew: the next one, here or elsewhere, reads the store again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from braidlog.cluster import paths
from braidlog.cluster.control_requests import (
    ConnectToBroker,
    ControlChannel,
    ControlRequest,
    ControlResponse,
)
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, ImageListener
from braidlog.cluster.producer_id_manager import claim_block
from braidlog.cluster.records import ProducerIdBlock
from braidlog.cluster.store import (
    CoordinationStore,
    SessionExpiredError,
    StoreConnectionError,
    StoreError,
    StoreFailedError,
    WatchEvent,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller import alter_partition, brokers, elections, reassignments, topics
from braidlog.controller.active_controller import ActiveController, as_protocol_error
from braidlog.controller.direct_writes import DirectWrites, pieces
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.gauges import ControllerGauges, ControllerState
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.controller.requests import (
    AlterPartitionResult,
    ConfigChanges,
    ConfigResult,
    DeletedTopicResult,
    ElectionType,
    FullConfig,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    OngoingReassignment,
    PartitionChange,
    PartitionResult,
    Reassignment,
    TopicRef,
    TopicResult,
)
from braidlog.controller.store_events import StoreEvents
from braidlog.core.clock import Clock
from braidlog.core.ids import random_id
from braidlog.core.protocol_errors import NotControllerError, ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, TopicPartition

R = TypeVar("R")
T = TypeVar("T")

# A request with more items than this, or more partitions in them, is cut into pieces that queue one after the other.
_ITEMS_IN_A_PIECE: Final = 50
_PARTITIONS_IN_A_PIECE: Final = 500
# How long to wait before the next election after one that failed.
_FIRST_ELECTION_RETRY_S: Final = 0.2
_LONGEST_ELECTION_RETRY_S: Final = 10.0
# When preferred leaders are looked at for the first time.
_FIRST_BALANCE_S: Final = 5.0

_log = logging.getLogger("braidlog.controller")


class Controller:
    """Start it after the broker is registered; every call below waits for its turn in the one queue.

    Results come in the order asked. A result is given once the change is durable and this broker has applied it. On a
    broker that is not the controller every call raises NotControllerError.
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
        self._connect: ConnectToBroker = _NoChannel
        self._active: ActiveController | None = None
        self._events: StoreEvents | None = None
        self._in_office = False
        self._bump_leader_epochs = False
        self._tasks = Tasks("controller election")
        self._wake = asyncio.Event()
        self._stopped = False
        self._retry_s = _FIRST_ELECTION_RETRY_S
        self.gauges = ControllerGauges(lambda: self._active.context if self._active and self._in_office else None)
        self._direct_writes = DirectWrites(lambda: self._store, lambda: self._image, settings, clock, rng, new_id)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, and has taken over."""
        return self._in_office

    @property
    def image(self) -> ClusterImage:
        """What listeners were told last."""
        return self._image

    def add_listener(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    # -- election --

    async def start(self, connect: ConnectToBroker | None = None, *, bump_leader_epochs: bool = False) -> None:
        """Try to become the controller; if so, return once all that follows is done and applied on this broker.

        Pass `bump_leader_epochs` after an unclean stop (see `takeover.take_over`). A store that holds what cannot be
        read, or cannot be written, ends the start of a broker; whatever else goes wrong is tried again.
        """
        if connect is not None:
            self._connect = connect
        self._bump_leader_epochs = bump_leader_epochs
        try:
            await self._elect()
        except (StoreConnectionError, SessionExpiredError) as problem:
            _log.warning("no controller could be elected yet, it is tried again: %s", problem)
            self._wake.set()
        self._bump_leader_epochs = False
        self._tasks.spawn("elections", self._run_elections())
        if self._active is not None:
            await self._active.settled()

    async def stop(self) -> None:
        """Finish the change at hand, refuse those still queued."""
        self._stopped = True
        await self._tasks.close()
        active, self._active, self._in_office = self._active, None, False
        if active is not None:
            await active.stop()

    async def resign(self) -> None:
        """Let another broker be elected, or this one anew."""
        active = self._active
        if active is not None:
            self._drop()
            with suppress(StoreError, StoreConnectionError, SessionExpiredError, NotControllerError):
                await active.give_up()
            await active.close()
            self._wake.set()

    def session_lost(self) -> None:
        """At once: a broker without a session decides nothing and says nothing."""
        self._drop()

    async def session_opened(self, session: CoordinationStore) -> None:
        self._drop()
        self._store = session
        self._wake.set()

    def _drop(self) -> None:
        """Every watch, queue, table and timer; the gauges are zero without them."""
        active, self._active, self._events, self._in_office = self._active, None, None, False
        if active is not None:
            active.drop()
            if not self._stopped:
                self._tasks.spawn("closing what the controller used", active.close())

    async def _run_elections(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._elect()
                self._retry_s = _FIRST_ELECTION_RETRY_S
            except SessionExpiredError:
                continue  # the next session wakes us
            except Exception as problem:
                _log.warning("the election of a controller failed, it is tried again: %s", problem)
                await asyncio.sleep(self._retry_s)
                self._retry_s = min(self._retry_s * 2, _LONGEST_ELECTION_RETRY_S)
                self._wake.set()

    def _controller_changed(self, event: WatchEvent) -> None:
        self._wake.set()

    async def _elect(self) -> None:
        """Look who is the controller, and become it if there is none."""
        store = self._store
        claimed = await store.exists(paths.CONTROLLER, self._controller_changed)
        if self._active is not None:
            if claimed is not None and claimed.ephemeral_owner == store.session_id:
                return
            _log.warning("another broker is the controller now")
            self._drop()
        try:
            fenced_store = await FencedStore.elect(store, self._broker_id, self._clock.wall_ms())
        except NotControllerError:
            return
        # The claim itself has fired the first watch.
        await store.exists(paths.CONTROLLER, self._controller_changed)
        await self._take_office(store, fenced_store)

    async def _take_office(self, store: CoordinationStore, fenced_store: FencedStore) -> None:
        context = ControllerContext(ClusterImage(), fenced_store.epoch, self._settings(), self._rng, self._new_id)
        active = ActiveController(
            store, fenced_store, self._broker_id, context, self._settings, self._clock, self._connect,
            self._publish if self._listeners else None, lambda problem: self._lost(active, problem),
        )  # fmt: skip
        events = StoreEvents(active)
        self._active, self._events = active, events
        try:
            active.quiet = True
            await events.take_over(self._bump_leader_epochs)
            active.quiet = False
            if active.dropped:
                raise NotControllerError("the office was lost before it was taken")
            await self._publish_everything(active, events)
        except Exception:
            self._drop()
            with suppress(StoreError, StoreConnectionError, SessionExpiredError, NotControllerError, StoreFailedError):
                await active.give_up()
            raise
        self._in_office = True
        active.start()
        active.tasks.spawn("leader balance", self._balance_leaders(active))
        _log.info("broker %d is the controller, epoch %d", self._broker_id, fenced_store.epoch)

    def _lost(self, active: ActiveController, problem: Exception) -> None:
        """The worker ended. Where the epoch was overtaken, /controller tells when to try again."""
        if self._active is not active:
            return
        self._drop()
        if isinstance(problem, NotControllerError | SessionExpiredError):
            _log.warning("this broker is not the controller any more: %s", problem)
            return
        _log.error("the controller resigns: %s", problem, exc_info=problem)
        self._tasks.spawn("resigning", self._give_up(active))

    async def _give_up(self, active: ActiveController) -> None:
        with suppress(StoreError, StoreConnectionError, SessionExpiredError, NotControllerError, StoreFailedError):
            await active.give_up()
        await asyncio.sleep(self._retry_s)
        self._wake.set()

    async def _publish_everything(self, active: ActiveController, events: StoreEvents) -> None:
        image = active.context.image
        delta = ImageDelta(
            topics_created=tuple(image.topics.values()),
            topics_deleted=events.found_deleting,
            configs_changed=dict(image.configs.items()),
            brokers=image.brokers,
            controller_id=self._broker_id,
        )
        await self._publish(image, delta)

    async def _publish(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Listeners first: once handlers see a topic, its logs are there."""
        for listener in self._listeners:
            try:
                await listener.image_changed(image, delta)
            except Exception:
                _log.exception("a listener could not apply a change of the cluster")
        self._image = image

    async def _balance_leaders(self, active: ActiveController) -> None:
        """auto.leader.rebalance.enable: from time to time, preferred leaders lead again."""
        wait_s = _FIRST_BALANCE_S
        while not active.dropped:
            await asyncio.sleep(wait_s)
            settings = self._settings()
            wait_s = settings.get_int("leader.imbalance.check.interval.seconds")
            if settings.get_bool("auto.leader.rebalance.enable") and not active.dropped:
                active.follow_up(_balanced, ControllerState.AUTO_LEADER_BALANCE)

    # -- requests --

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
            ControllerState.TOPIC_CHANGE,
        ):
            results += some
            already += sum(result.partitions for result in some if result.error is None)
        return results

    async def delete_topics(self, requests: Sequence[TopicRef]) -> list[DeletedTopicResult]:
        """Waits for the topics to be gone where that takes no other broker."""
        active = self._require()
        times = topics.times_named(active.context.image, requests)
        results: list[DeletedTopicResult] = []
        async for some in self._ask_in_pieces(
            _pieces(requests, self._partitions_of),
            lambda context, piece: topics.delete_topics(context, piece, times),
            lambda ref, error: DeletedTopicResult(ref.name, ref.topic_id, error),
            ControllerState.TOPIC_DELETION,
        ):
            results += some
        await active.deletions_settled(
            frozenset(result.name for result in results if result.error is None and result.name is not None)
        )
        return results

    def _partitions_of(self, ref: TopicRef) -> int:
        topic = topics.find(self._require().context.image, ref)
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
            ControllerState.TOPIC_CHANGE,
        ):
            results += some
            already += sum(result.added for result in some)
        return results

    async def alter_configs(self, requests: Sequence[FullConfig], validate_only: bool = False) -> list[ConfigResult]:
        """As any broker does it (`direct_writes`); listeners of the image have applied it."""
        return await self._applied(self._direct_writes.alter_configs(requests, validate_only))

    async def incremental_alter_configs(
        self, requests: Sequence[ConfigChanges], validate_only: bool = False
    ) -> list[ConfigResult]:
        return await self._applied(self._direct_writes.incremental_alter_configs(requests, validate_only))

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionResult]:
        """None elects for every partition that needs it and answers only for those."""
        return await self._require().ask(
            lambda context: elections.elect_leaders(context, election_type, partitions),
            ControllerState.MANUAL_LEADER_BALANCE,
        )

    async def alter_reassignments(self, requests: Sequence[Reassignment]) -> list[PartitionResult]:
        active = self._require()
        results = await active.ask(
            lambda context: reassignments.alter_reassignments(context, requests),
            ControllerState.ALTER_PARTITION_REASSIGNMENT,
        )
        self._reassignments_changed()
        return results

    def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> list[OngoingReassignment]:
        return reassignments.list_reassignments(self._require().context.image, partitions)

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
    ) -> list[AlterPartitionResult]:
        """ISR changes that a leader proposes."""
        active = self._require()
        results = await active.ask(
            lambda context: alter_partition.alter_partition(context, broker_id, broker_epoch, changes),
            ControllerState.ISR_CHANGE,
        )
        moving = [each.partition for each in results if each.info is not None and each.info.reassigning]
        if moving:
            active.follow_up(
                lambda context: reassignments.complete(context, moving), ControllerState.ALTER_PARTITION_REASSIGNMENT
            )
            self._reassignments_changed()
        return results

    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        active = self._require()
        brokers.check_epoch(active.context, broker_id, broker_epoch)
        self._store.lease.check()
        return await claim_block(self._store, broker_id)

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Sequence[TopicPartition]:
        """Moves leaders away from the broker; gives the partitions that it leads still."""
        return await self._require().ask(
            lambda context: brokers.controlled_shutdown(context, broker_id, broker_epoch),
            ControllerState.CONTROLLED_SHUTDOWN,
        )

    async def read_brokers(self) -> None:
        """Take over how the brokers are registered now, without waiting for the watch."""
        if self._active is not None and self._events is not None:
            with suppress(NotControllerError, SessionExpiredError):
                await self._active.read_now("brokers", self._events.read_brokers, ControllerState.BROKER_CHANGE)

    def _reassignments_changed(self) -> None:
        """Some may have ended: the node that asked for moves names only those under way."""
        if self._events is not None:
            self._events.reassignment_changed(None)

    async def _applied(self, writing: Awaitable[T]) -> T:
        """Listeners hear of what is written before the answer is given."""
        active, events = self._require(), self._events
        try:
            results = await writing
        except (StoreError, StoreConnectionError, SessionExpiredError, StoreFailedError) as problem:
            raise as_protocol_error(problem) from problem
        if events is not None:
            await active.read_now("configs", events.read_configs, ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE)
        return results

    def _require(self) -> ActiveController:
        if self._active is None or not self._in_office:
            raise NotControllerError("this broker is not the controller")
        return self._active

    async def _ask_in_pieces(
        self,
        pieces: Iterable[Sequence[R]],
        decide: Callable[[ControllerContext, Sequence[R]], tuple[Plan, list[T]]],
        failed: Callable[[R, ProtocolError], T],
        state: ControllerState,
    ) -> AsyncIterator[list[T]]:
        """The results of each piece. Where one fails after others were done, its items alone have the error."""
        done = False
        for piece in pieces:
            try:
                results = await self._require().ask(lambda context, piece=piece: decide(context, piece), state)  # type: ignore[misc]
            except ProtocolError as error:
                if not done:
                    raise
                results = [failed(request, error) for request in piece]
            done = True
            yield results


def _pieces(requests: Sequence[R], size_of: Callable[[R], int]) -> Iterable[Sequence[R]]:
    return pieces(requests, size_of, _ITEMS_IN_A_PIECE, _PARTITIONS_IN_A_PIECE)


def _balanced(context: ControllerContext) -> Plan:
    partitions = elections.imbalanced(context)
    return elections.elect_leaders(context, ElectionType.PREFERRED, partitions)[0] if partitions else Plan()


class _NoChannel(ControlChannel):
    """Where listeners of the image do what control requests would ask for."""

    def __init__(self, broker: BrokerInfo) -> None:
        self._broker = broker

    async def send(self, request: ControlRequest) -> ControlResponse:
        return ControlResponse(0)

    async def close(self) -> None:
        return None
