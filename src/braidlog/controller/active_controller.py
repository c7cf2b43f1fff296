"""The controller while it is in office: one queue and one worker that decide, commit to the store and tell brokers.

    request, response, store event -> queue -> decide (pure) -> fenced transaction -> broker queues -> answer

Requests that queued up are decided together, each on what the one before leaves, and committed as one transaction: a
burst of new topics costs a few syncs, not one each. What concerns every partition (a broker failed, a takeover) is
decided for some topics at a time, so that nothing else of this process waits for the whole of it.

An answer is given once the change is durable and this broker itself has applied what it was told. Whatever fails in a
way that leaves doubt about the store ends this object: the next election reads everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from braidlog.cluster.control_requests import (
    ConnectToBroker,
    ControlRequest,
    ControlResponse,
    LeaderAndIsr,
    StopReplica,
)
from braidlog.cluster.image import BrokerInfo, ClusterImage, TopicImage
from braidlog.cluster.store import (
    CoordinationStore,
    SessionExpiredError,
    StoreConnectionError,
    StoreError,
    StoreFailedError,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller import brokers, deletion
from braidlog.controller.broker_requests import parts, requests_of
from braidlog.controller.deletion import DeletionInProgress
from braidlog.controller.events import Decision, StoreEvent
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.gauges import ControllerState, ControllerStats
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.controller.queues import BrokerQueues
from braidlog.controller.topic_deletions import TopicDeletions
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    KafkaStorageError,
    NotControllerError,
    ProtocolError,
    RequestTimedOutError,
    StaleControllerEpochError,
    UnknownServerError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.time_slice import TimeSlice
from braidlog.core.types import BrokerId, TopicPartition

T = TypeVar("T")

# What one transaction may hold and how long decisions for it may take: the broker serves no other request meanwhile.
_STEPS_IN_A_BATCH: Final = 1_500
_DECIDING_S: Final = 0.005
# How many partitions are looked at in one go where all of them are.
_PARTITIONS_IN_A_SLICE: Final = 500
# A decision about more partitions, which a single topic may have, would hold up everyone.
_PARTITIONS_DECIDED_HERE: Final = 2_000
# How often something is decided anew because the store was newer than what was known.
_ATTEMPTS: Final = 5
# How long to wait before a change is tried again that the store had no room for.
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 30.0

_log = logging.getLogger("braidlog.controller")


class _Decided(NamedTuple):
    decision: Decision
    plan: Plan
    result: Any


class ActiveController:
    """`on_lost` is called once, when this object has become useless."""

    def __init__(
        self,
        store: CoordinationStore,
        fenced_store: FencedStore,
        broker_id: BrokerId,
        context: ControllerContext,
        settings: Callable[[], BrokerSettings],
        clock: Clock,
        connect: ConnectToBroker,
        on_lost: Callable[[Exception], None],
        stats: ControllerStats,
    ) -> None:
        self.store = store
        self._fenced_store = fenced_store
        self._broker_id = broker_id
        self._context = context
        self._settings = settings
        self._clock = clock
        self._on_lost = on_lost
        self._stats = stats
        self.state = ControllerState.IDLE
        self.tasks = Tasks("controller")
        self.queues = BrokerQueues(connect, store.lease, self)
        self._queue: deque[Decision | StoreEvent] = deque()
        self._events: dict[str, StoreEvent] = {}
        self.deletions = TopicDeletions(self, broker_id)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._retry_s = _FIRST_RETRY_S
        self._retrying: set[str] = set()
        self._worker: asyncio.Task[None] | None = None
        self._stopping = False
        self.dropped = False

    @property
    def context(self) -> ControllerContext:
        """What is known now, under the settings of now."""
        return self._context._replace(settings=self._settings())

    # -- from requests, watches and broker queues --

    async def ask(
        self,
        decide: Callable[[ControllerContext], tuple[Plan, T]],
        state: ControllerState = ControllerState.IDLE,
        partitions: int = 0,
    ) -> T:
        """`partitions` is about how many are to be decided."""
        self._check_in_office()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.put(Decision(decide, state, answer, partitions))
        return cast(T, await answer)

    def heard(self, name: str, read: Callable[[], Awaitable[None]], state: ControllerState) -> StoreEvent:
        """Queue a store event unless it waits already."""
        event = self._events.get(name)
        if event is None:
            event = StoreEvent(name, read, state)
            if not self.dropped:
                self._events[name] = event
                self.put(event)
        return event

    async def read_now(self, name: str, read: Callable[[], Awaitable[None]], state: ControllerState) -> None:
        """Queue the event and wait until it was handled and this broker has applied what follows."""
        self._check_in_office()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heard(name, read, state).answers.append(answer)
        await answer

    def answered(self, broker: BrokerInfo, request: ControlRequest, response: ControlResponse) -> None:
        if response.error:
            _log.warning("broker %d answered a control request with error %d", broker.id, response.error)
        answers = response.partitions
        if isinstance(request, LeaderAndIsr):
            known = self._context.offline_dirs.get(broker.id)
            if known or any(code == KafkaStorageError.code for code in answers.values()):
                decide = partial(brokers.leader_and_isr_answered, broker=broker.id, answers=answers)
                self.follow_up(_unless_bounced(broker, decide), ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED)
        elif isinstance(request, StopReplica) and request.partitions and request.partitions[0].delete:
            codes = {
                where: answers.get(where, response.error)
                for where in (TopicPartition(each.topic, each.partition) for each in request.partitions)
            }
            self.follow_up(
                _unless_bounced(broker, partial(deletion.answered, broker=broker.id, answers=codes)),
                ControllerState.TOPIC_DELETION,
            )

    def fenced(self) -> None:
        self._lose(StaleControllerEpochError("a broker knows a newer controller"))

    def refused(self, broker: BrokerInfo) -> None:
        self.heard(f"broker {broker.id} refuses", partial(self._hand_over, broker), ControllerState.BROKER_CHANGE)

    async def _hand_over(self, broker: BrokerInfo) -> None:
        """An election among in-sync replicas is safe whatever has become of the leader: it has a new epoch."""
        _log.warning("broker %d refuses connections before its session ends: others lead for it now", broker.id)
        await self.in_slices(lambda context, names: brokers.handed_over(context, broker, names))

    def follow_up(self, decide: Callable[[ControllerContext], Plan], state: ControllerState) -> None:
        """Decide something that no request waits for."""
        if not self.dropped:
            self.put(Decision(lambda context: (decide(context), None), state, None))

    @property
    def waiting(self) -> int:
        """Decisions and events that are queued."""
        return len(self._queue)

    def put(self, item: Decision | StoreEvent) -> None:
        if item.queued_s is None:
            item.queued_s = self._clock.monotonic()
        self._queue.append(item)
        self._idle.clear()
        self._wake.set()

    def put_first(self, decisions: Sequence[Decision]) -> None:
        self._queue.extendleft(reversed(decisions))
        if decisions:
            self._wake.set()

    def _check_in_office(self) -> None:
        if self.dropped or self._stopping:
            raise NotControllerError("this broker is not the controller")

    # -- the worker --

    def start(self) -> None:
        self._worker = self.tasks.spawn("worker", self._work())

    async def settled(self) -> None:
        """Until nothing is queued and this broker has applied what it was told."""
        while not self.dropped:
            await self._idle.wait()
            await self._applied_here()
            if self._idle.is_set() and not self.queues.size(self._broker_id):
                return

    async def _applied_here(self) -> None:
        applied = asyncio.Event()
        self.queues.when_applied(self._broker_id, applied.set)
        await applied.wait()

    async def _work(self) -> None:
        while not self.dropped and not self._stopping:
            if not self._queue:
                self.state = ControllerState.IDLE
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._handle_some()
            except Exception as problem:
                self._lose(problem)
                return
            # Where nothing was to be written, nothing else has let others run.
            await asyncio.sleep(0)

    async def _handle_some(self) -> None:
        await self.deletions.retry_removal()
        first = self._queue[0]
        self.state = first.state
        began = self._clock.monotonic()
        if isinstance(first, StoreEvent):
            self._queue.popleft()
            del self._events[first.name]
            self._waited(first, began)
            await self._handle_event(first)
        else:
            decisions: list[Decision] = []
            while self._queue and isinstance(self._queue[0], Decision):
                decisions.append(cast(Decision, self._queue.popleft()))
            for each in decisions:
                self._waited(each, began)
            await self._handle_decisions(decisions)
        self._stats.worked(first.state, self._clock.monotonic() - began)

    def _waited(self, item: Decision | StoreEvent, until: float) -> None:
        if item.queued_s is not None:
            self._stats.queue_times.record((until - item.queued_s) * 1000)
        item.queued_s = None

    async def _handle_event(self, event: StoreEvent) -> None:
        try:
            await event.read()
        except StoreFailedError as problem:
            # The embedded store has no room: nothing has changed, and it is not lost.
            event.fail(as_protocol_error(problem))
            event.answers.clear()
            self.again_later(event)
        except BaseException as problem:
            event.fail(as_protocol_error(problem))
            raise
        else:
            self.queues.when_applied(self._broker_id, event.finish)

    async def _handle_decisions(self, decisions: list[Decision]) -> None:
        try:
            for decision, plan, result in await self._decide_and_commit(decisions):
                await self.apply(plan)
                self.queues.when_applied(self._broker_id, partial(decision.succeed, result))
        except (StoreError, StoreFailedError) as problem:
            # Refused, or no room: nothing has changed.
            for decision in decisions:
                decision.fail(as_protocol_error(problem))
                if decision.answer is None:
                    self.again_later(decision)
        except BaseException as problem:
            # Also when the worker is cancelled: every request is answered.
            for decision in decisions:
                decision.fail(as_protocol_error(problem))
            raise

    async def _decide_and_commit(self, decisions: list[Decision]) -> list[_Decided]:
        """Decide again on what the store says if it turns out to be newer than what is known."""
        for attempt in range(1, _ATTEMPTS + 1):
            decided, rest = await self._decide(
                [each for each in decisions if not each.done and not self.deletions.is_parked(each)]
            )
            try:
                await self._commit([plan for _, plan, _ in decided])
            except StoreError as refusal:
                if attempt == _ATTEMPTS:
                    raise
                await self.refresh(refusal)
                continue
            self.put_first(rest)
            return decided
        raise AssertionError("the last attempt returns or raises")

    async def _decide(self, decisions: list[Decision]) -> tuple[list[_Decided], list[Decision]]:
        """Plans for the first decisions, and those that have to wait for the next transaction."""
        context = self.context
        decided: list[_Decided] = []
        size = 0
        until = self._clock.monotonic() + _DECIDING_S
        for place, decision in enumerate(decisions):
            try:
                decide = partial(decision.decide, context._replace(patient=decision.patient))
                plan, result = await take_decision(decide, decision.partitions)
            except DeletionInProgress:
                self.deletions.park(decision)
                continue
            except ProtocolError as error:
                decision.fail(error)
                continue
            except Exception as bug:
                if decision.answer is None:
                    raise
                decision.fail(as_protocol_error(bug))
                _log.exception("a decision of the controller failed")
                continue
            context = context.after(plan)
            decided.append(_Decided(decision, plan, result))
            size += len(plan.steps)
            if size > _STEPS_IN_A_BATCH or self._clock.monotonic() >= until:
                return decided, decisions[place + 1 :]
        return decided, []

    # -- committing and telling --

    async def decide_and_do(self, decide: Callable[[ControllerContext], Plan], partitions: int = 0) -> Plan:
        """For the worker and a takeover: one decision, at once. It is made again where the store was newer."""
        for attempt in range(1, _ATTEMPTS + 1):
            plan = await take_decision(partial(decide, self.context), partitions)
            try:
                await self._commit([plan])
            except StoreError as refusal:
                if attempt == _ATTEMPTS:
                    raise
                await self.refresh(refusal)
                continue
            await self.apply(plan)
            return plan
        raise AssertionError("the last attempt returns or raises")

    async def in_slices(
        self,
        decide: Callable[[ControllerContext, Sequence[str]], Plan],
        topics: Iterable[TopicImage] | None = None,
    ) -> None:
        """Decide for these topics, or for every one, some at a time; the rest of the process runs in between."""
        for some in slices(self._context.image.topics.values() if topics is None else topics):
            names = [topic.name for topic in some]
            await self.decide_and_do(
                lambda context, names=names: decide(context, names),  # type: ignore[misc]
                partitions_of(some),
            )
            await asyncio.sleep(0)

    async def _commit(self, plans: Sequence[Plan]) -> None:
        steps = [step for plan in plans for step in plan.steps]
        if steps:
            # Deciding has taken a while, and so does this.
            await asyncio.sleep(0)
            await self._fenced_store.commit(steps)
            self._retry_s = _FIRST_RETRY_S
        elif self.dropped:
            raise NotControllerError("this broker is not the controller any more")

    async def commit_steps(self, plan: Plan) -> None:
        """Only the steps, and at once: for nodes that are none of the image's."""
        await self._commit([plan])

    async def apply(self, plan: Plan) -> None:
        """The change counts at once; of many partitions brokers are told some at a time. Only one plan is applied at
        a time, so what follows from the next one is told after this."""
        before = self._context.image
        context = self._context = self._context.after(plan)
        if plan.delta.brokers is not None:
            self.queues.follow(context.image.brokers)
        time_slice = TimeSlice()
        for batch in plan.requests:
            for part in parts(batch):
                self._stats.elected(before, context.image, [role.where for role in part.roles])
                self.queues.send(requests_of(context, self._broker_id, part))
                await time_slice.yield_if_over()
                if self.dropped:
                    raise NotControllerError("this broker is not the controller any more")
        if plan.deletions:
            self.deletions.changed()
        if plan.delta.topics_changed and not all(going.begun for going in context.deletions.values()):
            # A deletion waits for a reassignment, which may have ended.
            self.follow_up(deletion.resume, ControllerState.TOPIC_DELETION)

    def load(self, image: ClusterImage) -> None:
        """What a takeover read: nothing is told of it yet."""
        self._context = self._context._replace(image=image)
        self.queues.follow(image.brokers)

    async def refresh(self, refusal: StoreError) -> None:
        """Read the topic whose node was not what we knew."""
        _log.warning("the store is newer than the controller knew (%s); reading it again", refusal)
        await self.read_again(refusal.path)

    # Set by the reader of store events.
    read_again: Callable[[str], Awaitable[None]]

    def again_later(self, item: Decision | StoreEvent) -> None:
        """The store had no room for it."""
        if isinstance(item, StoreEvent):
            if item.name in self._retrying:
                return
            self._retrying.add(item.name)
        asyncio.get_running_loop().call_later(self._retry_s, self._again, item)
        self._retry_s = min(self._retry_s * 2, _LONGEST_RETRY_S)

    def _again(self, item: Decision | StoreEvent) -> None:
        if isinstance(item, StoreEvent):
            self._retrying.discard(item.name)
            self.heard(item.name, item.read, item.state)
        elif not self.dropped:
            self.put(item)

    # -- leaving office --

    def _lose(self, problem: Exception) -> None:
        if not self.dropped:
            self.drop()
            self._on_lost(problem)

    def drop(self) -> None:
        """At once: nothing is committed, sent or decided any more, and all that waits is refused."""
        if self.dropped:
            return
        self.dropped = True
        self._fenced_store.revoke()
        self.queues.drop()
        error = NotControllerError("this broker is not the controller any more")
        for item in self._queue:
            item.fail(error)
        self._queue.clear()
        self._events.clear()
        self.deletions.drop(error)
        self._idle.set()
        self._wake.set()

    async def give_up(self) -> None:
        await self._fenced_store.give_up()

    async def stop(self) -> None:
        """Finish the change at hand, refuse those still queued."""
        self._stopping = True
        self._wake.set()
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)
        self.drop()
        await self.close()

    async def close(self) -> None:
        await self.queues.close()
        await self.tasks.close()


def _unless_bounced(
    broker: BrokerInfo, decide: Callable[[ControllerContext], Plan]
) -> Callable[[ControllerContext], Plan]:
    """An answer that waited while its broker came back: what it says is asked anew, and must not be taken for that."""

    def decide_if_same(context: ControllerContext) -> Plan:
        known = context.image.brokers.get(broker.id)
        return decide(context) if known is not None and known.epoch == broker.epoch else Plan()

    return decide_if_same


async def take_decision(decide: Callable[[], T], partitions: int) -> T:
    """Deciding is pure, and only one decision is made at a time: a large one is made in a thread, and what it looked
    at still holds when it is done."""
    if partitions <= _PARTITIONS_DECIDED_HERE:
        return decide()
    return await asyncio.get_running_loop().run_in_executor(None, decide)


def partitions_of(topics: Iterable[TopicImage]) -> int:
    return sum(len(topic.partitions) for topic in topics)


def slices(topics: Iterable[TopicImage]) -> Iterator[list[TopicImage]]:
    """The topics, some at a time: at least one slice, though it may be empty."""
    some: list[TopicImage] = []
    size = 0
    for topic in list(topics):
        some.append(topic)
        size += len(topic.partitions)
        if size >= _PARTITIONS_IN_A_SLICE:
            yield some
            some, size = [], 0
    yield some


def as_protocol_error(problem: BaseException) -> ProtocolError:
    if isinstance(problem, ProtocolError):
        return problem
    if isinstance(problem, SessionExpiredError | asyncio.CancelledError):
        return NotControllerError("this broker is not the controller any more")
    if isinstance(problem, StoreConnectionError):
        return RequestTimedOutError(f"the coordination store did not answer; it may have been done: {problem}")
    if isinstance(problem, StoreFailedError):
        return KafkaStorageError(str(problem))
    return UnknownServerError(f"the controller could not do this: {problem}")
