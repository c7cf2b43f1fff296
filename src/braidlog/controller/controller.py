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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from braidlog.cluster import paths
from braidlog.cluster.control_requests import (
    ConnectToBroker,
)
from braidlog.cluster.image import ClusterImage
from braidlog.cluster.producer_id_manager import claim_block
from braidlog.cluster.records import ProducerIdBlock
from braidlog.cluster.store import (
    CoordinationStore,
    Create,
    SessionExpiredError,
    SetData,
    StoreConnectionError,
    StoreError,
    StoreFailedError,
    WatchEvent,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller import brokers, elections, reassignments, topics
from braidlog.controller.active_controller import ActiveController, as_protocol_error, slices, take_decision
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.gauges import ControllerGauges, ControllerState, ControllerStats
from braidlog.controller.partitions import UNCLEAN
from braidlog.controller.plan import ControllerContext, Plan, Step
from braidlog.controller.requests import (
    AlterPartitionResult,
    DeletedTopicResult,
    ElectionType,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    OngoingReassignment,
    PartitionChange,
    PartitionResult,
    Reassignment,
    TopicRef,
    TopicResult,
    pieces,
)
from braidlog.controller.store_events import StoreEvents
from braidlog.core.clock import Clock
from braidlog.core.ids import random_id
from braidlog.core.protocol_errors import (
    FeatureUpdateFailedError,
    NotControllerError,
    ProtocolError,
    StaleControllerEpochError,
    UnknownServerError,
)
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
        self._connect: ConnectToBroker | None = None
        self._active: ActiveController | None = None
        self._events: StoreEvents | None = None
        self._in_office = False
        self._bump_leader_epochs = False
        self._bump_restarted = False
        self._tasks = Tasks("controller election")
        self._wake = asyncio.Event()
        self._stopped = False
        self._retry_s = _FIRST_ELECTION_RETRY_S
        # Counted over all its terms.
        self.stats = ControllerStats()
        self.gauges = ControllerGauges(
            lambda: self._active.context if self._active is not None and self._in_office else None,
            lambda: ControllerState.IDLE if self._active is None else self._active.state,
        )

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, and has taken over."""
        return self._in_office

    @property
    def image(self) -> ClusterImage:
        """What the controller knows; empty on a broker that is not the controller."""
        return self._active.context.image if self._active is not None and self._in_office else ClusterImage()

    # What waits here: events, requests to each broker, and for how long a broker is not reached; nothing off the
    # controller.

    @property
    def waiting_events(self) -> int:
        return self._active.waiting if self._active is not None else 0

    @property
    def waiting_requests(self) -> dict[BrokerId, int]:
        return self._active.queues.sizes() if self._active is not None else {}

    @property
    def unreachable_s(self) -> dict[BrokerId, float]:
        return self._active.queues.unreachable_s() if self._active is not None else {}

    # -- election --

    async def start(
        self, connect: ConnectToBroker, *, bump_leader_epochs: bool = False, bump_restarted: bool = False
    ) -> None:
        """Try to become the controller; if so, return once all that follows is done and applied on this broker.

        Pass `bump_leader_epochs` after an unclean stop, `bump_restarted` where there may be other brokers, whose stops
        nobody may have seen between two controllers (see `brokers.take_over`). A store that holds what cannot be
        read, or cannot be written, ends the start of a broker; whatever else goes wrong is tried again.
        """
        self._connect = connect
        self._bump_leader_epochs = bump_leader_epochs
        self._bump_restarted = bump_restarted
        try:
            await self._elect()
        except (StoreConnectionError, SessionExpiredError, NotControllerError) as problem:
            _log.warning("no controller could be elected yet, it is tried again: %s", problem)
            self._wake.set()
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

    def settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        """Leaders are elected for partitions that lack one as soon as that is allowed."""
        if self._events is not None and UNCLEAN in keys and settings.get_bool(UNCLEAN):
            self._events.unclean_elections_enabled()

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
        if self._connect is None:
            raise RuntimeError("the controller has not been started")
        context = ControllerContext(ClusterImage(), fenced_store.epoch, self._settings(), self._rng, self._new_id)
        active = ActiveController(
            store, fenced_store, self._broker_id, context, self._settings, self._clock, self._connect,
            lambda problem: self._lost(active, problem), self.stats,
        )  # fmt: skip
        events = StoreEvents(active)
        self._active, self._events = active, events
        began = self._clock.monotonic()
        try:
            await events.take_over(self._bump_leader_epochs, self._bump_restarted)
            if active.dropped:
                raise NotControllerError("the office was lost before it was taken")
        except Exception:
            self._drop()
            with suppress(StoreError, StoreConnectionError, SessionExpiredError, NotControllerError, StoreFailedError):
                await active.give_up()
            raise
        self.stats.worked(ControllerState.CONTROLLER_CHANGE, self._clock.monotonic() - began)
        self._in_office = True
        self._bump_leader_epochs = False
        active.start()
        active.tasks.spawn("leader balance", self._balance_leaders(active))
        _log.info("broker %d is the controller, epoch %d", self._broker_id, fenced_store.epoch)

    def _lost(self, active: ActiveController, problem: Exception) -> None:
        """The worker ended, or a broker knows a newer controller: whoever claims /controller next reads everything."""
        if self._active is not active:
            return
        self._drop()
        if isinstance(problem, SessionExpiredError):
            return  # the next session begins with an election
        if isinstance(problem, NotControllerError | StaleControllerEpochError):
            _log.warning("this broker is not the controller any more: %s", problem)
        elif isinstance(problem, StoreConnectionError):
            _log.warning("the controller resigns: %s", problem)
        else:
            _log.error("the controller resigns: %s", problem, exc_info=problem)
        self._tasks.spawn("resigning", self._give_up(active))

    async def _give_up(self, active: ActiveController) -> None:
        with suppress(StoreError, StoreConnectionError, SessionExpiredError, NotControllerError, StoreFailedError):
            await active.give_up()
        await asyncio.sleep(self._retry_s)
        self._wake.set()

    async def _balance_leaders(self, active: ActiveController) -> None:
        """auto.leader.rebalance.enable: from time to time, preferred leaders lead again."""
        wait_s = _FIRST_BALANCE_S
        while not active.dropped:
            await asyncio.sleep(wait_s)
            settings = self._settings()
            wait_s = settings.get_int("leader.imbalance.check.interval.seconds")
            if settings.get_bool("auto.leader.rebalance.enable") and not active.dropped:
                context = active.context
                wanted = await take_decision(partial(elections.imbalanced, context), context.image.partition_count)
                for first in range(0, len(wanted), _PARTITIONS_IN_A_PIECE):
                    piece = wanted[first : first + _PARTITIONS_IN_A_PIECE]
                    active.follow_up(partial(_elected, partitions=piece), ControllerState.AUTO_LEADER_BALANCE)

    # -- requests --

    async def create_topics(self, requests: Sequence[NewTopic], validate_only: bool = False) -> list[NewTopicResult]:
        times = Counter(request.name for request in requests)
        results: list[NewTopicResult] = []
        already = 0

        def decide(context: ControllerContext, piece: Sequence[NewTopic]) -> tuple[Plan, list[NewTopicResult]]:
            return topics.create_topics(context, piece, validate_only, times, already)

        async for some in self._ask_in_pieces(
            requests,
            lambda request: max(request.partitions, len(request.assignments)),
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
            requests,
            self._partitions_of,
            lambda context, piece: topics.delete_topics(context, piece, times),
            lambda ref, error: DeletedTopicResult(ref.name, ref.topic_id, error),
            ControllerState.TOPIC_DELETION,
        ):
            results += some
        await active.deletions.settled(
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
            requests,
            lambda request: request.count,
            decide,
            lambda request, error: TopicResult(request.topic, error),
            ControllerState.TOPIC_CHANGE,
        ):
            results += some
            already += sum(result.added for result in some)
        return results

    async def elect_leaders(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> list[PartitionResult]:
        """None elects for every partition that needs it and answers only for those."""
        every = partitions is None
        wanted = elections.all_partitions(self._require().context.image) if partitions is None else partitions
        results: list[PartitionResult] = []
        async for some in self._ask_in_pieces(
            list(dict.fromkeys(wanted)),
            _one_partition,
            lambda context, piece: elections.elect_leaders(context, election_type, piece, only_needed=every),
            PartitionResult,
            ControllerState.MANUAL_LEADER_BALANCE,
        ):
            results += some
        return results

    async def alter_reassignments(self, requests: Sequence[Reassignment]) -> list[PartitionResult]:
        """A partition that is named twice gets what is asked last."""
        last = {request.partition: request for request in requests}
        results: list[PartitionResult] = []
        async for some in self._ask_in_pieces(
            list(last.values()),
            _one_partition,
            reassignments.alter_reassignments,
            lambda request, error: PartitionResult(request.partition, error),
            ControllerState.ALTER_PARTITION_REASSIGNMENT,
        ):
            results += some
        self._reassignments_changed()
        return results

    def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> list[OngoingReassignment]:
        return reassignments.list_reassignments(self._require().context.image, partitions)

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
    ) -> list[AlterPartitionResult]:
        """ISR changes that a leader proposes."""
        # A lone broker has no use for it.
        from braidlog.controller import alter_partition

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
        brokers.check_epoch(self._require().context, broker_id, broker_epoch)
        try:
            self._store.lease.check()
            return await claim_block(self._store, broker_id)
        except (StoreError, StoreConnectionError, SessionExpiredError, StoreFailedError) as problem:
            # A block whose answer was lost is skipped for good: no id is given twice.
            raise as_protocol_error(problem) from problem

    async def write_features(self, data: bytes, version: int | None) -> None:
        """Replace `/feature`, which had this version; None where there was none. Raises FeatureUpdateFailedError where
        another has changed it since."""
        step: Step = Create(paths.FEATURE, data) if version is None else SetData(paths.FEATURE, data, version)
        try:
            await self._require().ask(lambda context: (Plan([step]), None), ControllerState.UPDATE_FEATURES)
        except UnknownServerError as problem:
            raise FeatureUpdateFailedError(f"/feature could not be written, try again: {problem.message}") from problem

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Sequence[TopicPartition]:
        """Moves leaders away from the broker; gives the partitions that it leads still."""
        remaining: list[TopicPartition] = []
        for some in slices(self._require().context.image.topics.values()):
            names = [topic.name for topic in some]
            remaining += await self._require().ask(
                lambda context, names=names: brokers.controlled_shutdown(context, broker_id, broker_epoch, names),  # type: ignore[misc]
                ControllerState.CONTROLLED_SHUTDOWN,
            )
        return remaining

    async def read_brokers(self) -> None:
        """Take over how the brokers are registered now, without waiting for the watch."""
        if self._active is not None and self._events is not None:
            with suppress(NotControllerError, SessionExpiredError):
                await self._active.read_now("brokers", self._events.read_brokers, ControllerState.BROKER_CHANGE)

    def _reassignments_changed(self) -> None:
        """Some may have ended: the node that asked for moves names only those under way."""
        if self._events is not None:
            self._events.reassignment_changed(None)

    def _require(self) -> ActiveController:
        if self._active is None or not self._in_office:
            raise NotControllerError("this broker is not the controller")
        return self._active

    async def _ask_in_pieces(
        self,
        requests: Sequence[R],
        size_of: Callable[[R], int],
        decide: Callable[[ControllerContext, Sequence[R]], tuple[Plan, list[T]]],
        failed: Callable[[R, ProtocolError], T],
        state: ControllerState,
    ) -> AsyncIterator[list[T]]:
        """The results of each piece; `size_of` counts the partitions of an item. Where a piece fails after others were
        done, its items alone have the error."""
        done = False
        most = _PARTITIONS_IN_A_PIECE if size_of is _one_partition else _ITEMS_IN_A_PIECE
        for piece in pieces(requests, size_of, most, _PARTITIONS_IN_A_PIECE):
            try:
                results = await self._require().ask(
                    lambda context, piece=piece: decide(context, piece),  # type: ignore[misc]
                    state,
                    sum(map(size_of, piece)),
                )
            except ProtocolError as error:
                if not done:
                    raise
                results = [failed(request, error) for request in piece]
            done = True
            yield results


def _one_partition(_: object) -> int:
    return 1


def _elected(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Plan:
    return elections.elect_leaders(context, ElectionType.PREFERRED, partitions)[0]
