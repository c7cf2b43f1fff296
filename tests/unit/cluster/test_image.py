from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from braidlog.cluster import paths
from braidlog.cluster.image import (
    BrokerInfo,
    ClusterImage,
    ImageDelta,
    PartitionInfo,
    TopicImage,
    broker_entity,
    group_entity,
    group_of,
    topic_entity,
)
from braidlog.cluster.store import check_path
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition

ONE = BrokerId(1)


def topic(name: str, partitions: int = 1, topic_id: bytes | None = None) -> TopicImage:
    state = PartitionInfo(ONE, LeaderEpoch(0), (ONE,), (ONE,))
    return TopicImage(name, topic_id or name.encode().ljust(16, b"-"), (state,) * partitions)


def test_lookups() -> None:
    orders = topic("orders", 2)
    image = ClusterImage().apply(
        ImageDelta(
            topics_created=(orders, topic("__consumer_offsets")),
            configs_changed={topic_entity("orders"): {"retention.ms": "1"}, broker_entity(ONE): {"a": "b"}},
            brokers={ONE: BrokerInfo(ONE, 7, (Endpoint("PLAINTEXT", "h", 9092),))},
            controller_id=ONE,
        )
    )
    assert image.topic("orders") is orders
    assert image.topic_by_id(orders.topic_id) is orders
    assert image.topic_by_id(bytes(16)) is None
    assert image.partition(TopicPartition("orders", 1)) is orders.partitions[1]
    assert image.partition(TopicPartition("orders", 2)) is None
    assert image.partition(TopicPartition("orders", -1)) is None
    assert image.partition(TopicPartition("no", 0)) is None
    assert image.topic_config("orders") == {"retention.ms": "1"}
    assert image.topic_config("other") == {}
    assert image.broker_config(ONE) == {"a": "b"}
    assert image.default_broker_config() == {}
    assert image.controller_id == ONE
    assert image.brokers[ONE].endpoint("PLAINTEXT") == Endpoint("PLAINTEXT", "h", 9092)
    assert image.brokers[ONE].endpoint("SSL") is None
    assert image.partition_count == 3
    offsets = image.topic("__consumer_offsets")
    assert offsets is not None
    assert offsets.internal
    assert not orders.internal


def test_an_older_image_stays_as_it_was() -> None:
    before = ClusterImage().apply(ImageDelta(topics_created=(topic("a"),)))
    after = before.apply(ImageDelta(topics_created=(topic("b"),), topics_deleted=(topic("a"),)))
    assert list(before.topics) == ["a"]
    assert list(after.topics) == ["b"]
    assert (before.partition_count, after.partition_count) == (1, 1)
    assert after.topic_by_id(topic("a").topic_id) is None


def test_colliding_names() -> None:
    image = ClusterImage().apply(ImageDelta(topics_created=(topic("a.b"), topic("plain"))))
    assert image.colliding_topic("a_b") == "a.b"
    assert image.colliding_topic("a.b") is None
    assert image.colliding_topic("plain") is None
    assert image.apply(ImageDelta(topics_deleted=(topic("a.b"),))).colliding_topic("a_b") is None


def test_emptied_overrides_leave_no_entry() -> None:
    image = ClusterImage().apply(ImageDelta(configs_changed={"topics/a": {"x": "1"}}))
    assert len(image.apply(ImageDelta(configs_changed={"topics/a": {}})).configs) == 0
    assert len(image.apply(ImageDelta(configs_deleted=("topics/a",))).configs) == 0


def test_a_recreated_topic_has_its_new_id_only() -> None:
    old, new = topic("a", topic_id=b"1" * 16), topic("a", 3, topic_id=b"2" * 16)
    image = ClusterImage().apply(ImageDelta(topics_created=(old,)))
    image = image.apply(ImageDelta(topics_deleted=(old,))).apply(ImageDelta(topics_created=(new,)))
    assert image.topic_by_id(b"1" * 16) is None
    assert image.topic_by_id(b"2" * 16) is new


topic_sets = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(1, 2), st.integers(1, 3)))
config_sets = st.dictionaries(st.sampled_from(["topics/a", "topics/b"]), st.just({"x": "1"}) | st.just({"x": "2"}))


def image_of(topics: dict[str, tuple[int, int]], configs: dict[str, dict[str, str]]) -> ClusterImage:
    created = tuple(topic(name, count, bytes([version, ord(name)] * 8)) for name, (version, count) in topics.items())
    return ClusterImage().apply(ImageDelta(topics_created=created, configs_changed=configs))


@given(topic_sets, config_sets, topic_sets, config_sets)
def test_the_difference_leads_from_one_image_to_the_other(
    topics: dict[str, tuple[int, int]],
    configs: dict[str, dict[str, str]],
    new_topics: dict[str, tuple[int, int]],
    new_configs: dict[str, dict[str, str]],
) -> None:
    before, after = image_of(topics, configs), image_of(new_topics, new_configs)
    delta = before.difference(after)
    assert before.apply(delta) == after
    assert delta.empty == (before == after)


@given(st.text(min_size=1))
@example(".")
@example("..")
@example("<default>")
@example("a/b c~*+%")
def test_a_group_of_any_name_has_a_place_of_its_own(group_id: str) -> None:
    entity = group_entity(group_id)
    check_path(paths.config(entity))
    assert entity.count("/") == 1
    assert group_of(entity) == group_id
    assert entity.removeprefix("groups/").isascii()


def test_other_entities_are_no_groups() -> None:
    assert group_of(topic_entity("groups")) is None
    assert group_of(broker_entity(None)) is None
