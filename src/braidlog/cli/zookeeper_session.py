"""ZooKeeper itself, for commands that need no broker: a session, and SCRAM users before the first broker runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import SystemRandom
from typing import Final, TypeVar

from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage, user_entity
from braidlog.cluster.registration import prepare_store
from braidlog.cluster.store import CoordinationStore
from braidlog.cluster.zookeeper.connection_settings import connection_settings
from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore
from braidlog.config.broker import BrokerSettings
from braidlog.config.sources import load_settings
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.users.scram_credentials import MECHANISMS, ScramChange, UserChanges
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry
from braidlog.security import scram

_SALT_BYTES: Final = 24

T = TypeVar("T")


def zookeeper_settings(config: str | None) -> BrokerSettings:
    """`config` is a broker's file, for how to reach a ZooKeeper that is secured."""
    # Variables are those of a broker, which this is not.
    return load_settings(config, {}).settings


def zookeeper_session(connect: str, settings: BrokerSettings, call: Callable[[CoordinationStore], Awaitable[T]]) -> T:
    """What `call` returns; `connect` is zookeeper.connect, whose chroot is made where it is missing."""

    async def session() -> T:
        store = await ZooKeeperStore(
            connection_settings(connect, settings), SystemClock(), MetricsRegistry()
        ).open_session()
        try:
            return await call(store)
        finally:
            await store.close()

    return asyncio.run(session())


class StoredUsers:
    """`connect` is zookeeper.connect; `config` a broker's file, for how to reach a ZooKeeper that is secured."""

    def __init__(self, connect: str, config: str | None) -> None:
        self._connect = connect
        self._settings = zookeeper_settings(config)

    def mechanisms_of(self, user: str) -> set[int]:
        """The mechanisms for which the user has a password, by the protocol's numbers."""

        async def read(store: CoordinationStore) -> set[int]:
            path = paths.config(user_entity(user))
            (node,) = await store.get_many([path])
            found = records.decode_config(path, node.data) if node is not None else {}
            return {number for number, mechanism in MECHANISMS.items() if mechanism.name in found}

        return self._run(read)

    def set_password(self, user: str, password: str, mechanism: int, iterations: int) -> None:
        salt = os.urandom(_SALT_BYTES)
        salted = scram.salted_password(MECHANISMS[mechanism], password, salt, iterations)
        change = ScramChange(mechanism, iterations, salt, salted)

        async def write(store: CoordinationStore) -> None:
            await prepare_store(store)
            writes = DirectWrites(lambda: store, ClusterImage, lambda: self._settings, SystemClock(), SystemRandom())
            results = await writes.alter_scram_credentials([UserChanges(user, (change,))])
            problem = results[user]
            if problem is not None:
                raise problem

        self._run(write)

    def _run(self, call: Callable[[CoordinationStore], Awaitable[T]]) -> T:
        return zookeeper_session(self._connect, self._settings, call)
