"""Policies of the cluster: code of its operators that is asked before a topic is created or configs are changed.

A policy hears of what could be done, so that it never sees a bad name or an unknown config. It runs in a thread: while
it thinks, others are served. It agrees by returning None and refuses by raising; whatever else comes of it is our
operator's mistake, which is logged with the policy's name and refused, too.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Final, Generic, NamedTuple, TypeVar

from braidlog.config.broker import BrokerSettings
from braidlog.controller.requests import (
    ConfigChanges,
    ConfigResource,
    ConfigResult,
    FullConfig,
    NewTopic,
    NewTopicResult,
    ResourceType,
)
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError, RequestTimedOutError, UnknownServerError
from braidlog.policies import AlterConfigMetadata, CreateTopicMetadata

log = logging.getLogger("braidlog.policies")

CREATE_TOPIC: Final = "create.topic.policy.class.name"
ALTER_CONFIG: Final = "alter.config.policy.class.name"
# The executor that policies run in.
THREADS: Final = "policies"
# For all that one request asks; clients wait as long by default.
_ANSWER_WITHIN_S: Final = 30.0

Asked = TypeVar("Asked")
Changes = TypeVar("Changes", FullConfig, ConfigChanges)


class Policy(Generic[Asked]):
    """One callable, under the name that the settings give it."""

    def __init__(self, name: str, call: Callable[[Asked], object], executor: Executor) -> None:
        self.name = name
        self._call = call
        self._executor = executor
        self.answer_within_s = _ANSWER_WITHIN_S

    async def ask(self, requests: Sequence[Asked]) -> list[ProtocolError | None]:
        """For each request the error to answer with, or None where the policy agrees."""
        if not requests:
            return []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.answer_within_s):
                return await loop.run_in_executor(self._executor, self._ask_each, requests)
        except TimeoutError:
            log.error("the policy %s has not answered within %g s", self.name, self.answer_within_s)
            late = RequestTimedOutError("the cluster's policy did not answer in time")
            return [late for _ in requests]

    def _ask_each(self, requests: Sequence[Asked]) -> list[ProtocolError | None]:
        return [self._ask_one(request) for request in requests]

    def _ask_one(self, request: Asked) -> ProtocolError | None:
        try:
            returned = self._call(request)
        except ProtocolError as refusal:
            log.info("the policy %s refuses %s: %s", self.name, request, refusal)
            return refusal
        except BaseException:
            # Also SystemExit, which would end the broker.
            log.exception("the policy %s failed on %s, which is refused", self.name, request)
            return UnknownServerError()
        if returned is None:
            return None
        if inspect.iscoroutine(returned):
            returned.close()
        log.error(
            "the policy %s returned a value (%s) for %s, which is refused: return None to agree, and raise "
            "braidlog.errors.PolicyViolationError to refuse",
            self.name,
            type(returned).__name__,
            request,
        )
        return UnknownServerError()


class CreateTopicPolicy(Policy[CreateTopicMetadata]):
    async def create_topics(
        self,
        create: Callable[[Sequence[NewTopic], bool], Awaitable[list[NewTopicResult]]],
        wanted: Sequence[NewTopic],
        validate_only: bool = False,
    ) -> list[NewTopicResult]:
        """What `create` makes of those topics that the policy agrees to; the second argument asks it only to look."""
        results = await create(wanted, True)
        possible = [index for index, result in enumerate(results) if result.error is None]
        verdicts = await self.ask([_new_topic(wanted[index], results[index]) for index in possible])
        agreed: list[int] = []
        for index, error in zip(possible, verdicts, strict=True):
            if error is None:
                agreed.append(index)
            else:
                results[index] = NewTopicResult(wanted[index].name, error)
        if agreed and not validate_only:
            created = await create([wanted[index] for index in agreed], False)
            for index, result in zip(agreed, created, strict=True):
                results[index] = result
        return results


class AlterConfigPolicy(Policy[AlterConfigMetadata]):
    async def alter_configs(
        self,
        alter: Callable[[Sequence[Changes], bool], Awaitable[list[ConfigResult]]],
        wanted: Sequence[Changes],
        validate_only: bool = False,
    ) -> list[ConfigResult]:
        """What `alter` makes of those changes that the policy agrees to; the second argument asks it only to look."""
        results = await alter(wanted, True)
        possible = [index for index, result in enumerate(results) if result.error is None]
        verdicts = await self.ask([_changes(wanted[index]) for index in possible])
        agreed: list[int] = []
        for index, error in zip(possible, verdicts, strict=True):
            if error is None:
                agreed.append(index)
            else:
                results[index] = ConfigResult(wanted[index].resource, error)
        if agreed and not validate_only:
            altered = await alter([wanted[index] for index in agreed], False)
            for index, result in zip(agreed, altered, strict=True):
                results[index] = result
        return results


class Policies(NamedTuple):
    """Those that the settings name."""

    create_topic: CreateTopicPolicy | None = None
    alter_config: AlterConfigPolicy | None = None


def load_policies(settings: BrokerSettings, executor_of: Callable[[str], Executor]) -> Policies:
    """Raises UserError that says what to write."""
    create, alter = settings.get_str(CREATE_TOPIC), settings.get_str(ALTER_CONFIG)
    if not create and not alter:
        return Policies()
    executor = executor_of(THREADS)
    return Policies(
        CreateTopicPolicy(create, _load(CREATE_TOPIC, create), executor) if create else None,
        AlterConfigPolicy(alter, _load(ALTER_CONFIG, alter), executor) if alter else None,
    )


def check_policies(settings: BrokerSettings) -> None:
    """Raises UserError where a broker would not start for want of a policy."""
    for key in (CREATE_TOPIC, ALTER_CONFIG):
        if settings.get_str(key):
            _load(key, settings.get_str(key))


def _load(key: str, name: str) -> Callable[[object], object]:
    where, _, path = name.partition(":")
    try:
        found: object = importlib.import_module(where)
    except (Exception, SystemExit) as problem:
        raise UserError(
            f"{key}: the module {where} cannot be imported ({_told(problem)}); install it for the broker's Python, "
            "or put its directory on PYTHONPATH"
        ) from problem
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UserError(
                f"{key}: {where} has no {path}; write package.module:object, where the object is a function, "
                "or a class that is made without arguments and called"
            ) from None
    if isinstance(found, type):
        try:
            found = found()
        except Exception as problem:
            raise UserError(f"{key}: {name}() cannot be made without arguments ({_told(problem)})") from problem
    if not callable(found):
        raise UserError(
            f"{key}: {name} cannot be called with a request; name a function, or a class whose objects have __call__"
        )
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(getattr(found, "__call__", None)):  # noqa: B004
        raise UserError(f"{key}: {name} is a coroutine function; write def, not async def: it runs in a thread")
    return found


def _told(problem: BaseException) -> str:
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _new_topic(wanted: NewTopic, checked: NewTopicResult) -> CreateTopicMetadata:
    assigned = bool(wanted.assignments)
    return CreateTopicMetadata(
        topic=wanted.name,
        num_partitions=None if assigned else checked.partitions,
        replication_factor=None if assigned else checked.replication_factor,
        replicas_assignments=dict(wanted.assignments) if assigned else None,
        configs=dict(checked.configs),
    )


def _changes(wanted: FullConfig | ConfigChanges) -> AlterConfigMetadata:
    resource: ConfigResource = wanted.resource
    configs: dict[str, str | None]
    if isinstance(wanted, FullConfig):
        configs = dict(wanted.entries)
    else:
        configs = {change.key: change.value for change in wanted.changes}
    return AlterConfigMetadata(ResourceType(resource.type).name, resource.name, configs)
