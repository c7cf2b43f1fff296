"""Keeps the view of the cluster fresh: on demand, after errors, and at least every `metadata.max.age.ms`.

Many may ask at once and one request goes out; after a failure the next follows a pause that doubles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from braidlog.client.errors import AuthenticationFailed, ClientError, ClosedError, RequestTimeout
from braidlog.client.network.nodes import Nodes
from braidlog.client.refusals import refusal
from braidlog.client.settings import Settings
from braidlog.client.view import EMPTY, ClusterView, TopicView, view_of, with_leader
from braidlog.core.protocol_errors import (
    NONE,
    InvalidTopicError,
    LeaderNotAvailableError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger("braidlog.client")

METADATA: Final = 3
# Waiting does not mend these.
_LASTING: Final = (InvalidTopicError.code, TopicAuthorizationFailedError.code)
# And these mend themselves soon.
_COMING: Final = (LeaderNotAvailableError.code,)
_JITTER: Final = 0.2


class Metadata:
    """Changed on the engine's thread only; `view` may be read by any."""

    def __init__(
        self,
        nodes: Nodes,
        settings: Settings,
        *,
        create_topics: bool = True,
        topic_idle_s: float | None = None,
        random: Random | None = None,
    ) -> None:
        self.view: ClusterView = EMPTY
        # Counts the refreshes that succeeded.
        self.version = 0
        # Called after each change of the view.
        self.listeners: list[Callable[[ClusterView], None]] = []
        self._nodes = nodes
        self._create_topics = create_topics
        self._topic_idle_s = topic_idle_s
        self._max_age_s = settings.seconds("metadata.max.age.ms")
        self._backoff_s = settings.seconds("retry.backoff.ms")
        self._longest_backoff_s = settings.seconds("retry.backoff.max.ms")
        self._rebootstraps = settings.text("metadata.recovery.strategy").lower() == "rebootstrap"
        self._random = random or Random()
        # Topic -> when it was last wanted.
        self._wanted: dict[str, float] = {}
        self._wants_all = False
        self._failures = 0
        # Why the last refresh failed; none after a success.
        self.problem: Exception | None = None
        self._refreshing: asyncio.Task[None] | None = None
        # Whether the request of the refresh under way is out already.
        self._is_sent = False
        self._again = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    # What to know of

    def want(self, *topics: str) -> bool:
        """Keep these topics in the view; true when one of them is not in it yet."""
        now = asyncio.get_running_loop().time()
        missing = False
        for name in topics:
            self._wanted[name] = now
            missing = missing or self.view.topic(name) is None
        return missing

    def want_only(self, topics: Iterable[str]) -> None:
        """Exactly these from now on."""
        now = asyncio.get_running_loop().time()
        self._wanted = dict.fromkeys(topics, now)

    def want_all(self, all_topics: bool) -> None:
        self._wants_all = all_topics

    # Refreshing

    def request_update(self) -> None:
        """See that a refresh is on its way; one that was sent already may be too old to tell: another follows it."""
        if self._closed:
            return
        if self._refreshing is not None:
            self._again = self._again or self._is_sent
            return
        self._is_sent = False
        self._again = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        self._refreshing = loop.create_task(self._refresh(), name="refresh metadata")

    async def refreshed(self) -> ClusterView:
        """The view after a refresh that was asked for from now on; raises what that refresh failed with."""
        if self._closed:
            raise ClosedError("the client is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A request under way may not ask for what was just wanted.
        if self._refreshing is not None and self._is_sent:
            self._again = True
            await asyncio.wait([self._refreshing])
        self._waiters.append(waiter)
        self.request_update()
        await waiter
        return self.view

    async def topic(self, name: str, timeout_s: float) -> TopicView:
        """A topic with its partitions; waits while it may be coming into being."""
        self.want(name)
        found = self.view.topic(name)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(timeout_s):
                return await self._appeared(name)
        except TimeoutError as problem:
            seen = self.view.topics.get(name)
            if seen is not None and seen.error_code != NONE:
                raise refusal(seen.error_code, f"topic {name} after {timeout_s:g} s") from problem
            reason = f"; last problem: {self.problem}" if self.problem else ""
            raise RequestTimeout(f"no metadata of topic {name} within {timeout_s:g} s{reason}") from problem

    async def _appeared(self, name: str) -> TopicView:
        while True:
            try:
                await self.refreshed()
            except (ClientError, ProtocolError) as problem:
                if not _passes(problem):
                    raise
                continue
            seen = self.view.topics.get(name)
            if seen is not None and seen.error_code in _LASTING:
                raise refusal(seen.error_code, f"topic {name}")
            found = self.view.topic(name)
            if found is not None:
                return found
            await asyncio.sleep(self._pause())

    async def _refresh(self) -> None:
        try:
            if self._failures:
                await asyncio.sleep(self._pause())
            await self._ask()
        except asyncio.CancelledError:
            self._settle(ClosedError("the client is closed"))
            raise
        except Exception as problem:
            self._failures += 1
            self.problem = problem
            if not isinstance(problem, (ClientError, ProtocolError)):
                log.exception("metadata could not be refreshed")
            self._settle(problem)
        else:
            self._failures = 0
            self.problem = None
            self._settle(None)
        finally:
            self._refreshing = None
        self._next()

    def _next(self) -> None:
        """What follows a refresh: another that was asked for meanwhile, a retry, or the one that age demands."""
        if self._closed:
            return
        if self._again:
            self.request_update()
            return
        wait_s = self._max_age_s
        if self.problem is not None:
            if not _passes(self.problem):
                return
            wait_s = 0.0
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.request_update()

    def _pause(self) -> float:
        pause: float = min(self._backoff_s * 2.0 ** max(self._failures - 1, 0), self._longest_backoff_s)
        return pause * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def _settle(self, problem: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(problem)

    async def _ask(self) -> None:
        self._forget_idle()
        try:
            connection = await self._nodes.any()
            # From here on without a pause until the request is out, so that it asks for all that was wanted.
            self._is_sent = True
            names = None if self._wants_all else [MetadataRequestTopic(name=name) for name in self._wanted]
            request = MetadataRequest(topics=names, allow_auto_topic_creation=self._create_topics)
            response = await connection.call(
                METADATA, request, MetadataResponse, timeout_s=self._nodes.request_timeout_s
            )
        except AuthenticationFailed:
            raise
        except ClientError:
            reachable = any(map(self._nodes.is_reachable, self.view.brokers))
            if self._rebootstraps and self._nodes.addresses and not reachable:
                log.warning("none of the known brokers answers; starting from bootstrap.servers again")
                self._nodes.forget_brokers()
            raise
        self._take(response)

    def _take(self, response: MetadataResponse) -> None:
        if not response.brokers:
            raise LeaderNotAvailableError("the broker knows of no broker yet; it is still starting")
        keep = frozenset() if self._wants_all else frozenset(self._wanted)
        self.view = view_of(response, self.view, keep)
        self.version += 1
        self._nodes.learn({each.id: (each.host, each.port) for each in self.view.brokers.values()})
        self._tell()
        if any(each.error_code in _COMING for each in self.view.topics.values()):
            self._again_later()

    def _again_later(self) -> None:
        """A topic has no leader yet: look again soon, without anybody having to ask."""
        asyncio.get_running_loop().call_later(self._pause(), self.request_update)

    def take_leader(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        """A broker that is not the leader said who is (KIP-951)."""
        changed = with_leader(self.view, topic, partition, leader, epoch)
        if changed is not self.view:
            self.view = changed
            self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            try:
                listener(self.view)
            except Exception:
                log.exception("a listener of metadata failed")

    def _forget_idle(self) -> None:
        if self._topic_idle_s is None:
            return
        oldest = asyncio.get_running_loop().time() - self._topic_idle_s
        self._wanted = {name: used for name, used in self._wanted.items() if used >= oldest}

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._settle(ClosedError("the client is closed"))


def _passes(problem: Exception) -> bool:
    """Whether the same question may be answered a moment later."""
    if isinstance(problem, ProtocolError):
        return problem.retriable or isinstance(problem, (UnknownTopicOrPartitionError, LeaderNotAvailableError))
    return isinstance(problem, ClientError) and problem.retriable
