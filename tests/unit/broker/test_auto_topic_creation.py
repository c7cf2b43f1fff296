from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.policies import CreateTopicPolicy
from braidlog.cluster.store import SessionExpiredError, StoreFailedError
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.core.protocol_errors import (
    InvalidReplicationFactorError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotControllerError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)
from support import example_policies
from support.control_requests import led_by, update_metadata


class Cluster:
    """Both ways to make topics: by the controller the cache has them at once, by the store in a while."""

    def __init__(self, *, active: bool, policy: CreateTopicPolicy | None = None) -> None:
        self.active = active
        self.cache = MetadataCache("cluster", ControlEpochs(lambda: 1))
        self.creation = AutoTopicCreation(self, lambda: Store(self), self.cache, policy)  # type: ignore[arg-type]
        self.asked: list[str] = []
        self.refuses: Exception | None = None

    async def create_topics(self, wanted: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        self.asked.append("controller")
        if not self.active:
            raise NotControllerError
        if validate_only:
            return [NewTopicResult(each.name) for each in wanted]
        for each in wanted:
            await self.cache.update(update_metadata(each.name, {0: led_by(1)}))
        return [NewTopicResult(each.name) for each in wanted]


class Store:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.results: dict[str, NewTopicResult] = {}

    async def create_topics(self, wanted: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        self._cluster.asked.append("store")
        if self._cluster.refuses is not None:
            raise self._cluster.refuses
        return [NewTopicResult(each.name, ERRORS.get(each.name)) for each in wanted]


ERRORS = {"there": TopicAlreadyExistsError(), "wide": InvalidReplicationFactorError()}


async def test_the_controller_here_creates_topics_at_once() -> None:
    cluster = Cluster(active=True)
    assert await cluster.creation.create([NewTopic("orders")]) == {}
    assert cluster.asked == ["controller"]


async def off_the_controller(policy: CreateTopicPolicy | None = None) -> Cluster:
    """A broker that knows the others."""
    cluster = Cluster(active=False, policy=policy)
    await cluster.cache.update(update_metadata())
    return cluster


async def test_a_broker_that_has_just_started_refuses_nothing_for_good() -> None:
    cluster = Cluster(active=False)
    problems = await cluster.creation.create([NewTopic("wide")])
    assert problems["wide"].code == LeaderNotAvailableError.code
    assert cluster.asked == []


async def test_elsewhere_the_topics_have_no_leader_yet() -> None:
    cluster = await off_the_controller()
    problems = await cluster.creation.create([NewTopic("orders"), NewTopic("there"), NewTopic("wide")])
    assert cluster.asked == ["store"]
    assert {name: error.code for name, error in problems.items()} == {
        "orders": LeaderNotAvailableError.code,
        "there": LeaderNotAvailableError.code,
        "wide": InvalidReplicationFactorError.code,
    }
    await cluster.cache.update(update_metadata("there", {0: led_by(1)}))
    assert await cluster.creation.create([NewTopic("there")]) == {}


async def test_a_controller_that_has_just_resigned_leaves_it_to_the_store() -> None:
    cluster = await off_the_controller()
    cluster.active = True

    async def resigned(wanted: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        cluster.asked.append("controller")
        raise NotControllerError

    cluster.create_topics = resigned  # type: ignore[method-assign]
    assert set(await cluster.creation.create([NewTopic("orders")])) == {"orders"}
    assert cluster.asked == ["controller", "store"]


async def test_without_a_store_the_client_tries_again() -> None:
    cluster = await off_the_controller()
    cluster.refuses = SessionExpiredError("the session is over")
    problems = await cluster.creation.create([NewTopic("orders")])
    assert problems["orders"].code == LeaderNotAvailableError.code
    cluster.refuses = StoreFailedError("no space left on device")
    with pytest.raises(KafkaStorageError):
        await cluster.creation.create([NewTopic("orders")])


@pytest.mark.parametrize("active", [True, False])
async def test_the_policy_decides_about_topics_of_first_use_too(active: bool) -> None:
    with ThreadPoolExecutor(1) as threads:
        policy = CreateTopicPolicy("example", example_policies.create, threads)
        cluster = Cluster(active=True, policy=policy) if active else await off_the_controller(policy)
        problems = await cluster.creation.create([NewTopic("orders"), NewTopic("refused")])
    assert isinstance(problems["refused"], PolicyViolationError)
    assert "orders" not in problems or isinstance(problems["orders"], LeaderNotAvailableError)
    assert (cluster.cache.image.topic("orders") is not None) == active
