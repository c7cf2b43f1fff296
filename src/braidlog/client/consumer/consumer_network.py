"""The parts of a consumer and how they wake each other: engine, connections, metadata, positions, fetching, group.

It never refers to the Consumer, which can so be collected while the engine's thread goes on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from braidlog.client.broker_errors import broker_error
from braidlog.client.cluster_view import ClusterView, TopicView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.fetch.fetch_responses import FetchResponseHandler
from braidlog.client.consumer.fetch.fetcher import Fetcher
from braidlog.client.consumer.interceptors import interceptors_of
from braidlog.client.consumer.offsets.auto_offset_reset import AutoOffsetResetStrategy
from braidlog.client.consumer.offsets.list_offsets import OffsetLookup
from braidlog.client.consumer.offsets.positions import FetchCommitted, Positions
from braidlog.client.consumer.subscription_state import SubscriptionKind, SubscriptionState
from braidlog.client.consumer.wakeup import Wakeup
from braidlog.client.errors import AuthenticationFailed, ClientError
from braidlog.client.metadata import Metadata
from braidlog.client.runtime import current_runtime
from braidlog.client.serialization import deserializer_of
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.clock import Clock
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    NONE,
    InvalidTopicError,
    ProtocolError,
    TopicAuthorizationFailedError,
    from_code,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.consumer.group.membership import Membership
    from braidlog.client.consumer.offsets.commits import Commits

T = TypeVar("T")

log = logging.getLogger("braidlog.client")

# A topic that does not exist may be made; it is looked for so often.
_UNKNOWN_TOPIC_S: Final = 1.0
_LASTING: Final = (InvalidTopicError.code, TopicAuthorizationFailedError.code)
# For a coordinator to answer that a collected consumer leaves.
_LEAVE_S: Final = 2.0


class ConsumerNetwork:
    def __init__(
        self, config: Mapping[str, Any] | None, keywords: Mapping[str, Any], clock: Clock | None = None
    ) -> None:
        self.settings = settings = Settings.of(CONSUMER, config, keywords)
        runtime = current_runtime()
        self.clock: Clock = clock or runtime.clock
        reset_strategy = AutoOffsetResetStrategy(settings.text("auto.offset.reset"))
        key_of = deserializer_of(settings, "key.deserializer")
        value_of = deserializer_of(settings, "value.deserializer")
        self.subscription = SubscriptionState(exclude_internal=settings.flag("exclude.internal.topics"))
        self.wakeup = Wakeup(self.clock, runtime.acquire)
        self.nodes = runtime.nodes(settings)
        self.interceptors = interceptors_of(settings)
        self.membership: Membership | None = None
        self.commits: Commits | None = None
        # What is wrong with the topics themselves; every poll raises it for as long as it lasts.
        self.topic_problem: ProtocolError | None = None
        # Without a group: what the partitions were chosen by.
        self._assigned_view: ClusterView | None = None
        self._assigned_version = -1
        self._look_again: asyncio.TimerHandle | None = None
        self.engine = runtime.new_engine("consumer")
        try:
            self._tasks = Tasks("consumer")
            self.metadata = Metadata(
                self.nodes,
                settings,
                create_topics=settings.flag("allow.auto.create.topics"),
                random=runtime.random,
            )
            self.context = ConsumerContext(
                settings,
                self.engine,
                self.nodes,
                self.metadata,
                self.subscription,
                self.wakeup,
                self.clock,
                runtime.random,
            )
            self._join_group()
            on_consume = None if self.interceptors is None else self.interceptors.on_consume
            self.fetch_buffer = FetchBuffer(self.subscription.lock, self._on_drained, key_of, value_of, on_consume)
            self.lookup = OffsetLookup(self.context)
            fetch_committed: FetchCommitted | None = None if self.commits is None else self.commits.fetch_committed
            positions = Positions(
                self.context, self._tasks, reset_strategy, self.lookup, self._on_positions, fetch_committed
            )
            responses = FetchResponseHandler(self.context, self.fetch_buffer, positions.reset_or_fail)
            self.fetcher = Fetcher(self.context, self._tasks, self.fetch_buffer, positions, responses)
            self.subscription.on_topics = self._on_topics
            self.subscription.on_assigned = self.fetcher.schedule
            self.metadata.listeners.append(self._on_view)
        except BaseException:
            self.engine.close()
            self._close_interceptors()
            raise

    def _join_group(self) -> None:
        if self.context.group_id is None:
            return
        from braidlog.client.consumer.group.membership import membership_for
        from braidlog.client.consumer.offsets.commits import Commits

        self.membership = membership_for(self.context)
        self.commits = Commits(self.context, self.membership, self.interceptors)

    # Notifications between the parts

    def _on_drained(self) -> None:
        self.fetcher.schedule_if_idle()

    def _on_positions(self) -> None:
        """On the engine's thread: a position was found, or could not be."""
        self.fetcher.schedule()
        self.wakeup.notify()

    def _on_topics(self) -> None:
        self.engine.soon(self._want_topics)

    def _want_topics(self) -> None:
        subscription = self.subscription
        self.metadata.want_all(subscription.kind is SubscriptionKind.PATTERN)
        self.metadata.want_only(subscription.group_topics)
        if subscription.kind is not SubscriptionKind.NONE:
            self.metadata.request_update()

    def _on_view(self, view: ClusterView) -> None:
        """On the engine's thread: metadata changed."""
        if self.subscription.match(view.topics):
            self.wakeup.notify()
        problem: ProtocolError | None = None
        for name in sorted(self.subscription.topics):
            topic = view.topics.get(name)
            if topic is None or topic.error_code == NONE:
                continue
            if topic.error_code in _LASTING:
                problem = problem or broker_error(topic.error_code, f"topic {name}")
            elif from_code(topic.error_code).retriable and self._look_again is None:
                self._look_again = self.engine.loop.call_later(_UNKNOWN_TOPIC_S, self._on_look_again)
        self.topic_problem = problem
        self.fetcher.advance()
        self.wakeup.notify()

    def _on_look_again(self) -> None:
        self._look_again = None
        self.metadata.request_update()

    # The program's thread

    def poll(self, take: Callable[[], T | None], deadline: float) -> T | None:
        """What every poll does: look after the group, then see whether `take` finds something, until it does."""
        if self.subscription.kind is SubscriptionKind.NONE:
            raise UserError("nothing to read: subscribe() to topics or assign() partitions first")
        membership = self.membership
        while True:
            self.wakeup.check()
            self.raise_failures()
            due = deadline
            if membership is not None:
                if self.subscription.is_auto:
                    membership.advance()
                due = min(deadline, membership.next_due())
            elif self.subscription.is_auto:
                self._assign_all()
            if self.commits is not None:
                self.commits.tick(self.clock.monotonic())
            found = take()
            if found is not None:
                return found
            now = self.clock.monotonic()
            if now >= deadline:
                return None
            self.wakeup.wait(due - now)

    def wait_until(self, is_true: Callable[[], bool], deadline: float) -> bool:
        """False when the deadline comes first; raises what went wrong meanwhile."""
        while not is_true():
            self.wakeup.check()
            self.raise_failures()
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return False
            self.wakeup.wait(left)
        return True

    def _assign_all(self) -> None:
        """Without a group, a subscription is every partition of its topics that metadata knows."""
        view, subscription = self.metadata.view, self.subscription
        if self._assigned_view is view and self._assigned_version == subscription.topics_version:
            return
        self._assigned_view, self._assigned_version = view, subscription.topics_version
        owned = subscription.assigned()
        wanted: set[TopicPartition] = set()
        for name in subscription.topics:
            topic = view.topic(name)
            if topic is not None:
                wanted.update(TopicPartition(name, number) for number in range(len(topic.partitions)))
            else:
                # Not known now; one that was read before may come back, and its positions are still good.
                wanted.update(each for each in owned if each.topic == name)
        if wanted == owned:
            return
        if owned - wanted:
            subscription.listener.on_partitions_revoked(sorted(owned - wanted))
        subscription.assign_from_group(sorted(wanted))
        if wanted - owned:
            subscription.listener.on_partitions_assigned(sorted(wanted - owned))

    def raise_failures(self) -> None:
        """What happened in the background and the program has to know."""
        if self.subscription.failures:
            problem = self.subscription.take_failure()
            if problem is not None:
                self.fetcher.schedule()
                raise problem
        problem = self.topic_problem
        if problem is None and isinstance(self.metadata.problem, AuthenticationFailed):
            problem = self.metadata.problem
        if problem is not None:
            # It may be over by now: the answer to this update shows it, and the next poll raises it again if not.
            self.topic_problem = None
            self.engine.soon(self.metadata.request_update)
            # The one that metadata keeps must not have the consumer in its traceback.
            raise copy(problem)

    async def all_topics(self) -> dict[str, TopicView]:
        """Asked for by itself, so that the view keeps to what is read."""
        while True:
            try:
                return dict((await self.metadata.ask(None)).topics)
            except (ClientError, ProtocolError) as problem:
                if not problem.retriable:
                    raise
                await asyncio.sleep(self.settings.seconds("retry.backoff.ms"))

    # End

    def close(self) -> None:
        if self.engine.is_closed:
            return
        try:
            self.engine.run(self._close(), 5.0)
        except Exception as problem:
            log.debug("the consumer's connections were not closed in order: %s", problem)
        finally:
            self.engine.close()
            self._close_interceptors()

    def abandon(self, *, keep_engine: bool = False) -> threading.Event:
        """The consumer was collected, or the program ends: leave the group, without waiting for that.

        Garbage is collected in the middle of anything, also of a call that holds the engine's lock or a log handler's:
        everything happens on the engine's thread, which is woken without a lock.
        """
        done = threading.Event()
        try:
            self.engine.loop.call_soon_threadsafe(self._begin_abandoning, done, keep_engine)
        except RuntimeError:
            # The loop has ended.
            done.set()
        return done

    def _begin_abandoning(self, done: threading.Event, keep_engine: bool) -> None:
        if self.engine.is_closed:
            done.set()
            return
        self._abandoning = self.engine.loop.create_task(self._abandon(done, keep_engine), name="leave the group")

    async def _abandon(self, done: threading.Event, keep_engine: bool) -> None:
        try:
            if self.membership is not None:
                try:
                    async with asyncio.timeout(_LEAVE_S):
                        await self.membership.abandon()
                except TimeoutError:
                    log.debug("group %s: the coordinator did not answer the leave request", self.context.group_id)
            # A program that ends needs no order; a thread of its own may still be inside a poll.
            if not keep_engine:
                await self._close()
        finally:
            done.set()
            if not keep_engine:
                self.engine.close()
                self._close_interceptors()

    def _close_interceptors(self) -> None:
        if self.interceptors is not None:
            self.interceptors.close()

    async def _close(self) -> None:
        await self.fetcher.close()
        await self._tasks.close()
        self.metadata.close()
        self.nodes.close()
        await asyncio.sleep(0)
