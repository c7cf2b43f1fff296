"""SCRAM users as ZooKeeper has them, for before the first broker of a cluster runs: brokers may need one themselves."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from random import SystemRandom
from typing import Final, TypeVar

from braidlog.cli.zookeeper_session import zookeeper_session, zookeeper_settings
from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage, user_entity
from braidlog.cluster.registration import prepare_store
from braidlog.cluster.store import CoordinationStore
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.users.scram_credentials import MECHANISMS, ScramChange, UserChanges
from braidlog.core.clock import SystemClock
from braidlog.security import scram

_SALT_BYTES: Final = 24

T = TypeVar("T")


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
