from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster.image import ClusterImage, ImageDelta
from braidlog.cluster.store import StoreUnavailableError
from braidlog.core.protocol_errors import NONE, StaleBrokerEpochError, StaleControllerEpochError
from braidlog.core.types import NO_BROKER, BrokerId
from support.control_requests import CONTROLLER, DELETED, brokers, led_by, topic_id, update_metadata


class Listener:
    def __init__(self) -> None:
        self.deltas: list[ImageDelta] = []

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        self.deltas.append(delta)


def make() -> tuple[MetadataCache, Listener]:
    cache, listener = MetadataCache("cluster", ControlEpochs(lambda: 7)), Listener()
    cache.add_listener(listener)
    return cache, listener


async def test_topics_brokers_and_the_controller_come_with_updates() -> None:
    cache, listener = make()
    await cache.update(update_metadata(live=brokers(1, 2)))
    assert (cache.image.cluster_id, cache.image.controller_id, sorted(cache.image.brokers)) == (
        "cluster",
        CONTROLLER,
        [1, 2],
    )
    await cache.update(update_metadata("orders", {0: led_by(1), 1: led_by(2)}, live=brokers(1)))
    topic = cache.image.topics["orders"]
    assert topic.partitions == (led_by(1), led_by(2))
    assert sorted(cache.image.brokers) == [1]
    assert cache.name_of(topic_id("orders")) == "orders"
    assert [cache.has_partition("orders", index) for index in (-1, 0, 1, 2)] == [False, True, True, False]
    assert listener.deltas[1].topics_created == (topic,)
    assert listener.deltas[1].controller_id is None


async def test_what_an_update_does_not_name_stays() -> None:
    cache, listener = make()
    await cache.update(update_metadata("orders", {0: led_by(1), 1: led_by(1), 2: led_by(1)}))
    await cache.update(update_metadata("bills", {0: led_by(1)}))
    await cache.update(update_metadata("orders", {1: led_by(2, epoch=1)}))
    assert cache.image.topics["orders"].partitions == (led_by(1), led_by(2, epoch=1), led_by(1))
    assert "bills" in cache.image.topics
    ((before, after),) = listener.deltas[-1].topics_changed
    assert (before.partitions[1].leader, after.partitions[1].leader) == (1, 2)
    assert listener.deltas[-1].brokers is None


async def test_an_update_that_changes_nothing_reaches_no_listener() -> None:
    cache, listener = make()
    for _ in range(2):
        await cache.update(update_metadata("orders", {0: led_by(1)}))
    assert len(listener.deltas) == 1


async def test_a_partition_below_the_first_known_one_is_not_known() -> None:
    cache, _ = make()
    await cache.update(update_metadata("orders", {2: led_by(1)}))
    assert [cache.has_partition("orders", index) for index in range(4)] == [False, False, True, False]
    await cache.update(update_metadata("orders", {0: led_by(1), 1: led_by(1)}))
    assert [cache.has_partition("orders", index) for index in range(4)] == [True, True, True, False]


async def test_a_topic_goes_with_its_last_partition() -> None:
    cache, listener = make()
    await cache.update(update_metadata("orders", {0: led_by(1), 1: led_by(1)}))
    await cache.update_configs({"topics/orders": {"retention.ms": "1"}})
    await cache.update(update_metadata("orders", {0: DELETED}))
    assert [cache.has_partition("orders", index) for index in range(2)] == [False, True]
    await cache.update(update_metadata("orders", {1: DELETED}))
    assert cache.image.topic("orders") is None
    assert cache.name_of(topic_id("orders")) is None
    assert cache.image.topic_config("orders") == {}
    assert [topic.name for topic in listener.deltas[-1].topics_deleted] == ["orders"]
    count = len(listener.deltas)
    await cache.update(update_metadata("orders", {0: DELETED, 1: DELETED}))
    assert len(listener.deltas) == count, "what is not known is not deleted again"


async def test_the_next_controller_may_keep_a_topic_that_was_to_be_deleted() -> None:
    cache, _ = make()
    await cache.update(update_metadata("orders", {0: DELETED}))
    await cache.update(update_metadata("orders", {0: led_by(1)}, controller_epoch=2))
    assert cache.has_partition("orders", 0)


async def test_a_topic_of_another_id_takes_the_place_of_the_known_one() -> None:
    cache, listener = make()
    await cache.update(update_metadata("orders", {0: led_by(1), 1: led_by(1)}))
    await cache.update(update_metadata("orders", {0: led_by(1)}, made=1))
    assert len(cache.image.topics["orders"].partitions) == 1
    assert cache.name_of(topic_id("orders")) is None
    assert cache.name_of(topic_id("orders", made=1)) == "orders"
    assert cache.image.partition_count == 1
    delta = listener.deltas[-1]
    assert (len(delta.topics_deleted), len(delta.topics_created)) == (1, 1)


async def test_stale_updates_change_nothing() -> None:
    cache, _ = make()
    assert (await cache.update(update_metadata("orders", {0: led_by(1)}, controller_epoch=4))).error == NONE
    older = await cache.update(update_metadata("orders", {0: led_by(2)}, controller_epoch=3))
    assert older.error == StaleControllerEpochError.code
    earlier = await cache.update(update_metadata("orders", {0: led_by(2)}, controller_epoch=4, broker_epoch=6))
    assert earlier.error == StaleBrokerEpochError.code
    assert cache.image.topics["orders"].partitions == (led_by(1),)


async def test_a_controller_that_is_gone_is_no_broker() -> None:
    cache, _ = make()
    await cache.update(update_metadata(controller=BrokerId(2)))
    await cache.update(update_metadata(controller=NO_BROKER))
    assert cache.image.controller_id == NO_BROKER


@pytest.mark.parametrize("problem", [StoreUnavailableError("no answer"), asyncio.CancelledError()])
async def test_overrides_that_could_not_be_read_are_read_by_the_next_request(problem: BaseException) -> None:
    cache, _ = make()

    async def fail(names: Sequence[str]) -> None:
        raise problem

    async def read(names: Sequence[str]) -> None:
        await cache.update_configs({f"topics/{name}": {"retention.ms": "1"} for name in names})

    cache.read_topic_configs = fail
    with pytest.raises(type(problem)):
        await cache.update(update_metadata("orders", {0: led_by(1)}))
    cache.read_topic_configs = read
    await cache.update(update_metadata("orders", {0: led_by(1)}))
    assert cache.image.topic_config("orders") == {"retention.ms": "1"}


async def test_the_overrides_of_a_new_topic_are_read_once_before_it_is_seen() -> None:
    cache, listener = make()
    asked: list[Sequence[str]] = []

    async def read(names: Sequence[str]) -> None:
        assert not any(name in cache.image.topics for name in names)
        asked.append(names)
        await cache.update_configs({f"topics/{name}": {"retention.ms": "1"} for name in names})

    cache.read_topic_configs = read
    await cache.prepare_topics({"orders": topic_id("orders")})
    assert cache.image.topic_config("orders") == {"retention.ms": "1"}
    await cache.update(update_metadata("orders", {0: led_by(1)}))
    await cache.update(update_metadata("bills", {0: led_by(2)}))
    await cache.prepare_topics({"orders": topic_id("orders"), "bills": topic_id("bills")})
    assert asked == [["orders"], ["bills"]]
    await cache.update(update_metadata("orders", {0: DELETED}))
    assert len(asked) == 2
    await cache.update(update_metadata("orders", {0: led_by(1)}, made=1))
    assert asked[2:] == [["orders"]]
    assert all(delta.configs_changed or not delta.topics_changed for delta in listener.deltas)


async def test_overrides_replace_those_that_an_entity_had() -> None:
    cache, listener = make()
    await cache.update_configs({"brokers/1": {"a": "1", "b": "2"}})
    await cache.update_configs({"brokers/1": {"b": "2"}})
    assert cache.image.broker_config(BrokerId(1)) == {"b": "2"}
    await cache.update_configs({"brokers/1": {"b": "2"}, "brokers/2": {}})
    assert len(listener.deltas) == 2, "nothing has changed"
    await cache.update_configs({"brokers/1": {}})
    assert "brokers/1" not in cache.image.configs


async def test_topics_that_went_unheard_of_are_forgotten_unless_they_were_made_again() -> None:
    cache, _ = make()
    await cache.update(update_metadata("orders", {0: led_by(1)}))
    await cache.update(update_metadata("bills", {0: led_by(1)}))
    await cache.update_configs({"topics/orders": {"segment.bytes": "2000"}})
    known = [cache.image.topics["orders"], cache.image.topics["bills"]._replace(topic_id=bytes(15) + b"9")]
    await cache.forget(known, [])
    assert list(cache.image.topics) == ["bills"]
    assert cache.image.config("topics/orders") == {}


async def test_overrides_that_are_not_stored_are_forgotten_unless_their_topic_is_here() -> None:
    cache, _ = make()
    await cache.load_configs({"topics/orders": {"segment.bytes": "2000"}, "topics/bills": {"segment.bytes": "3000"}})
    await cache.update(update_metadata("bills", {0: led_by(1)}))
    await cache.forget([], ["topics/orders", "topics/bills"])
    assert list(cache.image.configs) == ["topics/bills"]


async def test_a_topic_that_is_deleted_before_it_was_seen_leaves_nothing() -> None:
    """Its LeaderAndIsr came, and then the one that tells of its deletion."""
    cache, _ = make()
    await cache.prepare_topics({"orders": topic_id("orders")})
    await cache.update(update_metadata("orders", {0: DELETED}))
    await cache.update_configs({"topics/orders": {"segment.bytes": "2000"}})
    assert cache.image.config("topics/orders") == {}


async def test_a_deleted_topic_that_was_never_known_takes_its_overrides_with_it() -> None:
    cache, _ = make()
    await cache.load_configs({"topics/orders": {"segment.bytes": "2000"}})
    assert cache.image.config("topics/orders") == {"segment.bytes": "2000"}
    await cache.update(update_metadata("orders", {0: DELETED}))
    assert cache.image.config("topics/orders") == {}
