"""Policies as operators write them, for brokers under test; `java/ExamplePolicies.java` has the same for Kafka."""

from __future__ import annotations

import asyncio
import threading

from braidlog.errors import InvalidConfigError, PolicyViolationError
from braidlog.policies import AlterConfigMetadata, CreateTopicMetadata

ASKED_TO_CREATE: list[CreateTopicMetadata] = []
ASKED_TO_ALTER: list[AlterConfigMetadata] = []
# What `slow` waits for, and says that it does.
SLOW_MAY_GO_ON = threading.Event()
SLOW_WAITS = threading.Event()

NOT_CALLABLE = 7


def create(request: CreateTopicMetadata) -> None:
    ASKED_TO_CREATE.append(request)
    _decide(request.topic)
    if request.configs.get("retention.ms") == "1":
        raise PolicyViolationError(f"{request.topic} would lose its records: raise retention.ms")


class Alter:
    def __call__(self, request: AlterConfigMetadata) -> None:
        ASKED_TO_ALTER.append(request)
        _decide(request.configs.get("retention.ms") or "")
        if request.configs.get("retention.ms") == "1":
            raise PolicyViolationError(f"{request.resource_name} would lose its records: raise retention.ms")
        if request.configs.get("message.max.bytes") == "3":
            raise PolicyViolationError("three bytes are too few")


def _decide(name: str) -> None:
    if name.startswith("refused"):
        raise PolicyViolationError(f"{name} is refused: call it otherwise")
    if name.startswith("config"):
        raise InvalidConfigError("another error of the protocol")
    if name.startswith("broken"):
        raise RuntimeError("a secret of the policy")
    if name.startswith("exit"):
        raise SystemExit(3)


def slow(request: CreateTopicMetadata) -> None:
    SLOW_WAITS.set()
    SLOW_MAY_GO_ON.wait()


def answers_yes(request: object) -> bool:
    return True


async def coroutine(request: object) -> None:
    await asyncio.sleep(0)


def hidden_coroutine(request: object) -> object:
    return coroutine(request)


class Asynchronous:
    async def __call__(self, request: object) -> None:
        await asyncio.sleep(0)


class WithArguments:
    def __init__(self, setting: str) -> None:
        self.setting = setting

    def __call__(self, request: object) -> None:
        raise PolicyViolationError(self.setting)


class NotCallable:
    pass
