"""The way to a group's coordinator: found when first needed, and again when it moved, loads or cannot be reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from braidlog.client.broker_errors import broker_error
from braidlog.client.errors import ClientError
from braidlog.client.network.lookups import COORDINATOR_CONNECTION, find_coordinators
from braidlog.client.network.nodes import Nodes
from braidlog.client.requests.find_coordinator import GROUP
from braidlog.client.settings import Settings
from braidlog.core.protocol_errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProtocolError,
)
from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.client.group")

# Where fetches go: one waits there for `fetch.max.wait.ms` at most, and a join on the other connection much longer.
_FETCH_CONNECTION: Final = ""
_RETRIABLE_CODES: Final = (
    CoordinatorLoadInProgressError.code,
    CoordinatorNotAvailableError.code,
    NotCoordinatorError.code,
)

Answer = TypeVar("Answer", bound=Message)


class CoordinatorClient:
    """Used on the engine's thread only."""

    def __init__(self, nodes: Nodes, settings: Settings, group_id: str, random: Random | None = None) -> None:
        self.group_id = group_id
        self.request_timeout_s = settings.seconds("request.timeout.ms")
        # The broker that coordinates the group, none while that is not known.
        self.node_id: int | None = None
        # Whether a join or sync is parked on the coordinator's connection, where others would queue up behind it.
        self._is_parked = False
        self._nodes = nodes
        self._backoff_s = settings.seconds("retry.backoff.ms")
        self._longest_backoff_s = settings.seconds("retry.backoff.max.ms")
        self._random = random or Random()
        self._finding: asyncio.Task[int] | None = None
        self._subject = f"group {group_id}"

    def backoff(self) -> ExponentialBackoff:
        return ExponentialBackoff(self._backoff_s, self._longest_backoff_s, self._random)

    def mark_unknown(self, why: object) -> None:
        """Look the coordinator up again before the next request."""
        if self.node_id is not None:
            log.info("group %s: broker %d no longer coordinates it: %s", self.group_id, self.node_id, why)
        self.node_id = None

    def failed(self, problem: Exception, what: str = "", since: float | None = None) -> None:
        """`what`, or the membership itself, has to be tried again."""
        self._nodes.problems.failed(what or self._subject, problem, since=since, part_of=self._subject)

    def recovered(self, what: str = "") -> None:
        """The coordinator did what it was asked for."""
        if not self._nodes.problems.is_empty:
            self._nodes.problems.recovered(what or self._subject)

    async def find(self) -> int:
        """The coordinating broker; goes on asking until there is one. Raises where asking again does not help."""
        if self.node_id is not None:
            return self.node_id
        if self._finding is None:
            self._finding = asyncio.get_running_loop().create_task(self._find(), name=f"find {self.group_id}")
            self._finding.add_done_callback(self._found)
        # A task that stops waiting must not take the answer from the others.
        return await asyncio.shield(self._finding)

    def _found(self, task: asyncio.Task[int]) -> None:
        self._finding = None
        if not task.cancelled():
            task.exception()

    async def _find(self) -> int:
        backoff = self.backoff()
        while True:
            began = self._nodes.problems.now()
            try:
                self.node_id = await self._look_up()
                return self.node_id
            except (ClientError, ProtocolError) as problem:
                if not problem.retriable:
                    raise
                self.failed(problem, since=began)
            await backoff.wait()

    async def _look_up(self) -> int:
        connection = await self._nodes.any()
        (found,) = await find_coordinators(connection, GROUP, [self.group_id], self.request_timeout_s)
        if found.error_code != NONE:
            raise broker_error(found.error_code, f"group {self.group_id}", found.error_message)
        self._nodes.learn_one(found.node_id, (found.host, found.port))
        log.debug("group %s: broker %d at %s:%d coordinates it", self.group_id, found.node_id, found.host, found.port)
        return found.node_id

    async def connection(self) -> PipelinedConnection:
        node_id = await self.find()
        began = self._nodes.problems.now()
        try:
            return await self._nodes.connection(
                node_id, _FETCH_CONNECTION if self._is_parked else COORDINATOR_CONNECTION
            )
        except ClientError as problem:
            self.failed(problem, since=began)
            self.mark_unknown(problem)
            raise

    async def ask(
        self,
        api_key: int,
        request: Callable[[int], Message],
        answer: type[Answer],
        *,
        at_most: int,
        timeout_s: float | None = None,
        parks: bool = False,
    ) -> Answer:
        """One request, made for the newest common version, and its answer, also if that is an error.

        `parks` says that the answer may wait for what other members do.
        """
        connection = await self.connection()
        version = connection.version_for(api_key, at_most)
        # How long a join is parked is up to the other members.
        began = None if parks else self._nodes.problems.now()
        try:
            waiting = connection.post(api_key, version, request(version), timeout_s or self.request_timeout_s)
            self._is_parked = self._is_parked or parks
            response = await waiting
        except ClientError as problem:
            self.failed(problem, since=began)
            self.mark_unknown(problem)
            raise
        finally:
            if parks:
                self._is_parked = False
        assert isinstance(response, answer)
        return response

    def handle_error(self, error_code: int) -> bool:
        """Whether an answer means no more than to ask again after a pause, perhaps elsewhere."""
        if error_code in (CoordinatorNotAvailableError.code, NotCoordinatorError.code):
            self.mark_unknown(broker_error(error_code, f"group {self.group_id}"))
        if error_code in _RETRIABLE_CODES:
            self.failed(broker_error(error_code, self._subject))
            return True
        return False

    def close(self) -> None:
        if self._finding is not None:
            self._finding.cancel()
