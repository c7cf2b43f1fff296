"""Keeps the view of the cluster fresh: on demand, after errors, and at least every `metadata.max.age.ms`.

Many may ask at once and one request goes out. Requests keep `retry.backoff.ms` between them, and a pause that doubles
after failures, except for what is waited for: a topic that is wanted for the first time, and `refreshed`. What is asked
once, and not to be kept, goes out by itself (`ask`): all that an Admin needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Final

from braidlog.client.broker_errors import broker_error
from braidlog.client.cluster_view import EMPTY, NO_LEADER, ClusterView, TopicView, view_of, with_leader
from braidlog.client.errors import AuthenticationFailed, ClientError, ClosedError, RequestTimeout
from braidlog.client.network.nodes import Nodes
from braidlog.client.problem_log import CLUSTER
from braidlog.client.requests.metadata import METADATA, metadata_request
from braidlog.client.settings import Settings
from braidlog.core.protocol_errors import (
    NONE,
    InvalidTopicError,
    LeaderNotAvailableError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse

log = logging.getLogger("braidlog.client")

# Waiting does not mend these.
_LASTING: Final = (InvalidTopicError.code, TopicAuthorizationFailedError.code)
# And these mend themselves soon.
_COMING: Final = (LeaderNotAvailableError.code,)


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
        self.problems = nodes.problems
        self._nodes = nodes
        self._create_topics = create_topics
        self._topic_idle_s = topic_idle_s
        self._max_age_s = settings.seconds("metadata.max.age.ms")
        self._backoff = ExponentialBackoff(
            settings.seconds("retry.backoff.ms"), settings.seconds("retry.backoff.max.ms"), random or Random()
        )
        self._rebootstraps = settings.text("metadata.recovery.strategy").lower() == "rebootstrap"
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
        # Those of the refresh under way, and those of the one after it, since its request is out already.
        self._waiters: list[asyncio.Future[None]] = []
        self._later: list[asyncio.Future[None]] = []
        # Before then no error is reason enough for another request.
        self._not_before = 0.0
        # Answers in a row that spoke of leaders yet to come.
        self._coming = 0
        self._closed = False

    # What to know of

    def want(self, *topics: str) -> bool:
        """Keep these topics in the view; true when one of them is not in it yet."""
        now = asyncio.get_running_loop().time()
        missing = False
        for name in topics:
            if name not in self._wanted:
                self._not_before = 0.0
            self._wanted[name] = now
            missing = missing or self.view.topic(name) is None
        return missing

    def want_only(self, topics: Iterable[str]) -> None:
        """Exactly these from now on."""
        now = asyncio.get_running_loop().time()
        before, self._wanted = self._wanted, dict.fromkeys(sorted(topics), now)
        if not before.keys() >= self._wanted.keys():
            self._not_before = 0.0

    def want_all(self, all_topics: bool) -> None:
        if all_topics and not self._wants_all:
            self._not_before = 0.0
        self._wants_all = all_topics

    # Refreshing

    def request_update(self) -> None:
        """See that a refresh is on its way; one that was sent already may be too old to tell: another follows it."""
        if self._closed:
            return
        if self._refreshing is not None:
            self._again = self._again or self._is_sent
            return
        if asyncio.get_running_loop().time() < self._not_before:
            self._arm(self._not_before)
        else:
            self._begin()

    def _begin(self) -> None:
        self._is_sent = False
        self._again = False
        self._waiters += self._later
        self._later = []
        self._disarm()
        self._refreshing = asyncio.get_running_loop().create_task(self._refresh(), name="refresh metadata")

    def _arm(self, when: float) -> None:
        """Refresh then, if not before."""
        if self._timer is None or when < self._timer.when():
            self._disarm()
            self._timer = asyncio.get_running_loop().call_at(when, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def refreshed(self) -> ClusterView:
        """The view after a refresh that was asked for from now on; raises what that refresh failed with."""
        if self._closed:
            raise ClosedError("the client is closed")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._refreshing is None:
            self._waiters.append(waiter)
            self._begin()
        elif self._is_sent:
            # A request under way may not ask for what was just wanted.
            self._later.append(waiter)
        else:
            self._waiters.append(waiter)
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
                raise broker_error(seen.error_code, f"topic {name} after {timeout_s:g} s") from problem
            reason = f"; last problem: {self.problem}" if self.problem else ""
            raise RequestTimeout(f"no metadata of topic {name} within {timeout_s:g} s{reason}") from problem

    async def _appeared(self, name: str) -> TopicView:
        for attempt in count():
            try:
                await self.refreshed()
            except (ClientError, ProtocolError) as problem:
                if not _passes(problem):
                    raise
                continue
            seen = self.view.topics.get(name)
            if seen is not None and seen.error_code in _LASTING:
                raise broker_error(seen.error_code, f"topic {name}")
            found = self.view.topic(name)
            if found is not None:
                return found
            await asyncio.sleep(self._backoff.pause_s(attempt))
        raise AssertionError("counting does not end")

    async def _refresh(self) -> None:
        try:
            if self._failures:
                await asyncio.sleep(self._backoff.pause_s(self._failures - 1))
            began = self.problems.now()
            await self._ask_for_wanted()
        except asyncio.CancelledError:
            # The engine ends, with or without having closed us first.
            self._closed = True
            self._settle(ClosedError("the client is closed"))
            raise
        except Exception as problem:
            self._failures += 1
            self.problem = problem
            if isinstance(problem, (ClientError, ProtocolError)):
                self.problems.failed(CLUSTER, problem, since=began)
            else:
                log.exception("metadata could not be refreshed")
            self._settle(problem)
        else:
            self._failures = 0
            self.problem = None
            self.problems.recovered(CLUSTER)
            self._report_missing()
            self._settle(None)
        finally:
            self._refreshing = None
        self._next()

    def _next(self) -> None:
        """What follows a refresh: another that was asked for meanwhile, a retry, or the one that age demands."""
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        if self.problem is None:
            self._not_before = now + self._backoff.pause_s(0)
        if self._later:
            self._begin()
        elif self._again:
            self.request_update()
        elif self.problem is not None:
            # What does not pass by itself may have been mended by the time that age demands another look.
            self._arm(now if _passes(self.problem) else now + self._max_age_s)
        else:
            age_s = self._backoff.pause_s(self._coming - 1) if self._coming else self._max_age_s
            self._arm(max(now + age_s, self._not_before))

    def _on_timer(self) -> None:
        self._timer = None
        if self._refreshing is None and not self._closed:
            self._begin()

    def _settle(self, problem: BaseException | None) -> None:
        waiters, self._waiters = self._waiters, []
        if self._closed:
            waiters += self._later
            self._later = []
        for waiter in waiters:
            if waiter.done():
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(problem)

    async def _ask_for_wanted(self) -> None:
        self._forget_idle()
        self._take(await self._send(self._next_request, self._nodes.request_timeout_s))

    def _next_request(self) -> MetadataRequest:
        # From here on without a pause until the request is out, so that it asks for all that was wanted.
        self._is_sent = True
        return metadata_request(None if self._wants_all else self._wanted, create_topics=self._create_topics)

    async def _send(self, build: Callable[[], MetadataRequest], timeout_s: float) -> MetadataResponse:
        """One attempt, at any broker."""
        try:
            connection = await self._nodes.any()
            return await connection.call(METADATA, build(), MetadataResponse, timeout_s=timeout_s)
        except AuthenticationFailed:
            raise
        except ClientError:
            self.rebootstrap()
            raise

    def rebootstrap(self) -> bool:
        """Whether the next attempt starts from `bootstrap.servers` again, since no known broker can be reached."""
        reachable = any(map(self._nodes.is_reachable, self.view.brokers))
        if not self._rebootstraps or not self._nodes.addresses or reachable:
            return False
        log.info("none of the known brokers answers; starting from bootstrap.servers again")
        self._nodes.rebootstrap()
        return True

    async def ask(
        self, topics: Iterable[str] | None, *, create_topics: bool = False, timeout_s: float | None = None
    ) -> ClusterView:
        """What a broker says of these topics, or of all (None), by one request; the view learns the brokers alone."""
        request = metadata_request(topics, create_topics=create_topics)
        response = await self._send(lambda: request, timeout_s or self._nodes.request_timeout_s)
        asked = view_of(response, EMPTY, frozenset())
        # One that is still starting may know of none.
        if asked.brokers:
            self.view = asked._replace(topics=self.view.topics)
            self._learn_brokers()
            self._notify()
        return asked

    def _learn_brokers(self) -> None:
        self._nodes.learn({each.id: (each.host, each.port) for each in self.view.brokers.values()})

    def _take(self, response: MetadataResponse) -> None:
        if not response.brokers:
            raise LeaderNotAvailableError("the broker knows of no broker yet; it is still starting")
        keep = frozenset() if self._wants_all else frozenset(self._wanted)
        self.view = view_of(response, self.view, keep)
        self.version += 1
        self._learn_brokers()
        self._coming = self._coming + 1 if any(map(_is_coming, self.view.topics.values())) else 0
        self._notify()

    def _report_missing(self) -> None:
        """Topics that are wanted and cannot be used now; what does not pass is raised to the program instead."""
        for name in self._wanted:
            topic = self.view.topics.get(name)
            if topic is None:
                continue
            subject = f"topic {name}"
            if topic.error_code != NONE:
                if topic.error_code not in _LASTING:
                    self.problems.failed(subject, broker_error(topic.error_code, subject))
            elif leaderless := [str(each.index) for each in topic.partitions if each.leader == NO_LEADER]:
                numbers = ", ".join(leaderless)
                self.problems.failed(
                    subject, broker_error(LeaderNotAvailableError.code, f"{subject}: partition {numbers}")
                )
            elif not self.problems.is_empty:
                self.problems.recovered(subject)

    def take_leader(self, topic: str, partition: int, leader: int, epoch: int) -> None:
        """A broker that is not the leader said who is (KIP-951)."""
        changed = with_leader(self.view, topic, partition, leader, epoch)
        if changed is not self.view:
            self.view = changed
            self._notify()

    def _notify(self) -> None:
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
        self._disarm()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._settle(ClosedError("the client is closed"))


def _is_coming(topic: TopicView) -> bool:
    """Whether it, or a part of it, has no leader yet: the view is refreshed soon, without a request."""
    return topic.error_code in _COMING or any(each.error_code in _COMING for each in topic.partitions)


def _passes(problem: Exception) -> bool:
    """Whether the same question may be answered a moment later."""
    if isinstance(problem, ProtocolError):
        return problem.retriable or isinstance(problem, (UnknownTopicOrPartitionError, LeaderNotAvailableError))
    return isinstance(problem, ClientError) and problem.retriable
