"""Takes questions to the brokers that can answer them, and again after an election or a lost connection, in time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from braidlog.client.admin.cluster_call import BrokerConnection, ClusterCall
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.lookup_strategies import ANY, AT_ONCE, AnyBrokerStrategy, CoordinatorStrategy, LookupStrategy
from braidlog.client.admin.results import Answer, Failure, Item, Results
from braidlog.client.backoff import Retry
from braidlog.client.errors import ClosedError, NoConnection, RequestTimeout
from braidlog.client.problem_log import CLUSTER, ProblemLog
from braidlog.client.requests.find_coordinator import GROUP, TRANSACTION
from braidlog.core.clock import Clock, SystemClock
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError, UnknownServerError

_LOST: Final = (NoConnection, RequestTimeout)

Returned = TypeVar("Returned")
# Asked of a broker, on the engine's thread, about those items that it answers for.
Question = Callable[[BrokerConnection, list[Item]], Coroutine[Any, Any, Mapping[Item, Answer | ProtocolError]]]


class AdminApiDriver:
    """One cluster, and how long to go on asking it.

    A call may take `api_timeout_s`, over all its attempts; each request takes at most the cluster's own timeout.
    Threads may share one: their requests take turns.
    """

    def __init__(
        self,
        cluster: ClusterConnection | Callable[[], ClusterConnection],
        api_timeout_s: float | None = None,
        new_retry: Callable[[float], Retry] = Retry,
        clock: Clock | None = None,
    ) -> None:
        # Given as a function, the cluster is connected to when it is first needed.
        self._connect = cluster if not isinstance(cluster, ClusterConnection) else None
        self._cluster = cluster if isinstance(cluster, ClusterConnection) else None
        if api_timeout_s is None:
            assert isinstance(cluster, ClusterConnection), (
                "one that is yet to be connected to has no timeout of its own"
            )
            api_timeout_s = cluster.timeout_s
        self.api_timeout_s = api_timeout_s
        self._new_retry = new_retry
        self._clock: Clock = clock or SystemClock()
        self.groups = CoordinatorStrategy(GROUP)
        self.transactions = CoordinatorStrategy(TRANSACTION)
        self._connecting = threading.RLock()
        self.is_closed = False
        self._process = os.getpid()

    @property
    def cluster(self) -> ClusterConnection:
        self._check_process()
        with self._connecting:
            if self.is_closed:
                raise ClosedError("this client was closed; make a new one")
            if self._cluster is None:
                assert self._connect is not None
                self._cluster = self._connect()
            return self._cluster

    def _check_process(self) -> None:
        """Before any lock is taken: one of before a fork may never be released."""
        if self._is_left_behind:
            raise ClosedError(
                "this client was made before a fork and belongs to the parent process; make a new one here"
            )
        if os.getpid() != self._process:
            # Nothing was connected to yet: this process may have it as its own.
            self._connecting = threading.RLock()
            self._process = os.getpid()

    @property
    def _is_left_behind(self) -> bool:
        return os.getpid() != self._process and self._cluster is not None

    @property
    def timeout_ms(self) -> int:
        """What a request says of how long the broker may take over it."""
        return int(min(self.cluster.timeout_s, self.api_timeout_s) * 1000)

    def within(self, api_timeout_s: float) -> AdminApiDriver:
        """The same connections with another deadline."""
        return AdminApiDriver(lambda: self.cluster, api_timeout_s, self._new_retry, self._clock)

    def close(self) -> None:
        if self._is_left_behind:
            return
        self._check_process()
        with self._connecting:
            self.is_closed = True
            if self._cluster is not None:
                self._cluster.close()

    def ask(
        self,
        items: Iterable[Item],
        where: LookupStrategy[Item],
        question: Question[Item, Answer],
        *,
        at_once: int = AT_ONCE,
    ) -> Results[Item, Answer]:
        """What `question` learns of each item from the broker that answers for it.

        What a broker puts off, or sends elsewhere, is asked again until the deadline; the last word counts. An error
        that the question raises is the whole call's, and so is a cluster that cannot be reached at all.
        """
        order = list(dict.fromkeys(items))
        if not order:
            return Results({})
        deadline = self._clock.monotonic() + self.api_timeout_s
        found = self.cluster.run(lambda call: self._ask(call, order, where, question, at_once), deadline)
        outcomes = {each: found[each] for each in order}
        lost = [each for each in outcomes.values() if isinstance(each, _LOST)]
        if lost and len(lost) == len(outcomes):
            raise lost[0].with_traceback(None)
        return Results(outcomes)

    def ask_one(
        self,
        where: LookupStrategy[str],
        question: Callable[[BrokerConnection], Coroutine[Any, Any, Returned]],
        what: str = "",
    ) -> Returned:
        """The one answer to a question that is about the cluster as a whole, or about `what`."""

        async def about_it(node: BrokerConnection, _: list[str]) -> dict[str, Returned]:
            return {what: await question(node)}

        return self.ask([what], where, about_it)[what]

    def broker_ids(self) -> list[int]:
        """The brokers that are up."""
        return self.ask_one(AnyBrokerStrategy(), lambda node: node.cluster.broker_ids())

    # On the engine's thread

    async def _ask(
        self,
        call: ClusterCall,
        items: list[Item],
        where: LookupStrategy[Item],
        question: Question[Item, Answer],
        at_once: int,
    ) -> dict[Item, Answer | Failure]:
        found: dict[Item, Answer | Failure] = {}
        waiting = items
        retry = self._new_retry(self.api_timeout_s)
        problems = ProblemLog("admin", self._clock.monotonic)
        while waiting:
            found |= await self._round(call, waiting, where, question, at_once)
            waiting = [each for each in waiting if _may_change(found[each], where)]
            _report(problems, [(each, found[each]) for each in waiting])
            where.forget(waiting)
            if waiting and not await retry.again():
                break
        return found

    async def _round(
        self,
        call: ClusterCall,
        items: Sequence[Item],
        where: LookupStrategy[Item],
        question: Question[Item, Answer],
        at_once: int,
    ) -> dict[Item, Answer | Failure]:
        """Every item asked about once."""
        try:
            async with call.turn:
                lookup_result = await where.lookup(call, items)
        except _LOST as problem:
            return dict.fromkeys(items, problem)
        found: dict[Item, Answer | Failure] = {**lookup_result.refused}
        for broker_id, some in lookup_result.by_broker.items():
            for piece in _pieces(some, at_once):
                async with call.turn:
                    found |= await self._answers(call, broker_id, piece, where, question)
        return found

    async def _answers(
        self,
        call: ClusterCall,
        broker_id: int,
        items: list[Item],
        where: LookupStrategy[Item],
        question: Question[Item, Answer],
    ) -> dict[Item, Answer | Failure]:
        try:
            node = await (call.any() if broker_id == ANY else call.node(broker_id))
            answers = await question(node, items)
        except _LOST as problem:
            # Learn what the brokers that are left know; the next attempt has a new connection.
            with suppress(BraidlogError):
                await call.metadata([])
            return dict.fromkeys(items, problem)
        except ProtocolError as problem:
            if not where.is_retriable(problem):
                raise
            return dict.fromkeys(items, problem)
        return {each: answers[each] if each in answers else _unmentioned(each) for each in items}


def _report(problems: ProblemLog, waiting: list[tuple[Item, object]]) -> None:
    """Log why a call goes on trying."""
    if not waiting:
        problems.recovered_all()
        return
    for item, problem in waiting:
        if isinstance(problem, _LOST):
            problems.failed(CLUSTER, problem)
            return
        assert isinstance(problem, Exception)
        problems.failed(str(item) or "the request", problem)
    problems.recovered(CLUSTER)


def _may_change(outcome: object, where: LookupStrategy[Item]) -> bool:
    if isinstance(outcome, _LOST):
        return True
    return isinstance(outcome, ProtocolError) and where.is_retriable(outcome)


def _unmentioned(item: object) -> UnknownServerError:
    return UnknownServerError(f"{item}: the broker's answer says nothing about it; try again, and see its log")


def _pieces(items: list[Item], at_once: int) -> Iterator[list[Item]]:
    for first in range(0, len(items), at_once):
        yield items[first : first + at_once]
