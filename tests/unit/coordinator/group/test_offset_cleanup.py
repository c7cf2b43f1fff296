"""Offsets that go without a request: old ones, and those of topics that are gone."""

from __future__ import annotations

import pytest

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.offset_records import offset_key, offset_value
from braidlog.coordinator.group.offset_table import TopicOffsets
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord
from support.offsets_shard import OffsetsDriver, OffsetsShard

RETENTION_S = 3600
CHECK_S = 60
SETTINGS = GroupSettings(offsets_retention_ms=RETENTION_S * 1000, offsets_check_interval_ms=CHECK_S * 1000)
MANY = 5_000


class BatchingDriver(OffsetsDriver):
    """Notes how many bytes each batch has, and checks that none is near the limit on a message."""

    def __init__(self, *topics: str, settings: GroupSettings | None = None) -> None:
        self.batches: list[int] = []
        super().__init__(*topics, settings=settings)

    def apply(self, effects: Effects) -> None:
        if effects.records:
            self.batches.append(sum(len(r.key) + len(r.value or b"") for r in effects.records))
        super().apply(effects)


def committed(*topics: str) -> OffsetsDriver:
    driver = OffsetsDriver(*topics, settings=SETTINGS)
    for topic in topics:
        driver.commit("g", topic, 0, 5)
    return driver


def fill(driver: OffsetsDriver, count: int, topic: str = "t") -> None:
    effects = Effects()
    value = offset_value(1, -1, "", driver.now.wall_ms, -1)
    for partition in range(count):
        effects.write(offset_key("g", topic, partition), value)
    OffsetsDriver.apply(driver, effects)


def test_old_offsets_go_and_their_group_with_them() -> None:
    driver = committed("t")
    driver.advance(RETENTION_S - CHECK_S)
    assert driver.offsets_of("g") == {("t", 0): 5}
    driver.advance(2 * CHECK_S)
    assert driver.offsets_of("g") == {}
    assert driver.shard.groups == {}


def test_a_newer_commit_starts_the_retention_anew() -> None:
    driver = committed("t", "u")
    driver.advance(RETENTION_S - CHECK_S)
    driver.commit("g", "t", 0, 6)
    driver.advance(2 * CHECK_S)
    assert driver.offsets_of("g") == {("t", 0): 6}
    assert list(driver.shard.groups) == ["g"]


def test_offsets_stay_while_the_group_says_so() -> None:
    driver = committed("t", "u")
    group = driver.shard.group("g")
    group.empty = False
    group.subscribed = {"t"}
    driver.advance(2 * RETENTION_S)
    assert driver.offsets_of("g") == {("t", 0): 5}
    group.subscribed = set()
    group.ageless = True
    driver.advance(2 * CHECK_S)
    assert driver.offsets_of("g") == {("t", 0): 5}
    group.ageless = False
    driver.advance(2 * CHECK_S)
    assert driver.offsets_of("g") == {}
    assert list(driver.shard.groups) == ["g"]


def test_the_retention_counts_from_when_the_group_says() -> None:
    driver = committed("t")
    driver.advance(RETENTION_S - 2 * CHECK_S)
    driver.shard.group("g").age_from_ms = driver.now.wall_ms
    driver.advance(RETENTION_S - 2 * CHECK_S)
    assert driver.offsets_of("g") == {("t", 0): 5}
    driver.advance(4 * CHECK_S)
    assert driver.offsets_of("g") == {}


def test_a_retention_of_its_own_beats_that_of_the_broker() -> None:
    driver = OffsetsDriver("t", settings=SETTINGS)
    driver.commit("g", "t", 0, 5, version=3, retention_ms=2 * CHECK_S * 1000)
    driver.commit("g", "t", 1, 6, version=3, retention_ms=3 * RETENTION_S * 1000)
    driver.advance(4 * CHECK_S)
    assert driver.offsets_of("g") == {("t", 1): 6}
    driver.advance(2 * RETENTION_S)
    assert driver.offsets_of("g") == {("t", 1): 6}
    driver.advance(2 * RETENTION_S)
    assert driver.offsets_of("g") == {}


def test_what_a_transaction_is_about_to_change_does_not_expire() -> None:
    driver = committed("t")
    driver.commit_txn(5, "g", {("t", 0): 9})
    driver.advance(2 * RETENTION_S)
    assert driver.offsets_of("g") == {("t", 0): 5}
    driver.end_transaction(5, 0, commits=False)
    driver.advance(2 * CHECK_S)
    assert driver.offsets_of("g") == {}


def test_a_group_with_nothing_but_an_open_transaction_stays() -> None:
    driver = OffsetsDriver("t", settings=SETTINGS)
    driver.commit_txn(5, "g", {("t", 0): 9})
    driver.advance(2 * RETENTION_S)
    assert list(driver.shard.groups) == ["g"]


def test_a_group_with_members_but_without_offsets_stays() -> None:
    driver = OffsetsDriver("t", settings=SETTINGS)
    driver.shard.group("g").empty = False
    driver.shard.group("h")
    driver.advance(2 * CHECK_S)
    assert list(driver.shard.groups) == ["g"]


def test_offsets_of_a_deleted_topic_go() -> None:
    driver = committed("t", "u")
    driver.commit("h", "t", 2, 7)
    driver.commit_txn(5, "i", {("t", 0): 1, ("u", 0): 2})
    driver.delete_topic("t")
    driver.end_transaction(5, 0, commits=True)
    assert driver.offsets_of("g") == {("u", 0): 5}
    assert driver.offsets_of("h") == {}
    assert driver.offsets_of("i") == {("u", 0): 2}
    assert sorted(driver.shard.groups) == ["g", "h", "i"]


def test_a_topic_that_went_while_the_shard_was_down() -> None:
    driver = committed("t", "u")
    driver.topics.there.pop("t")
    driver.crash()
    assert driver.offsets_of("g") == {("u", 0): 5}


@pytest.mark.parametrize("way", ["topic", "age"])
def test_very_many_offsets_go_in_batches_below_the_message_limit(way: str) -> None:
    driver = BatchingDriver("t", settings=SETTINGS)
    fill(driver, MANY)
    driver.batches.clear()
    if way == "topic":
        driver.delete_topic("t")
    else:
        driver.advance(RETENTION_S)
    driver.advance(2 * CHECK_S)
    assert driver.offsets_of("g") == {}
    assert len(driver.batches) > 1
    assert max(driver.batches) < 200 * 1024


def test_a_topic_made_anew_keeps_its_offsets_while_the_old_ones_go() -> None:
    driver = OffsetsDriver("t", settings=SETTINGS)
    fill(driver, MANY)
    driver.delete_topic("t")
    assert driver.offsets_of("g")
    driver.topics.there["t"] = None
    driver.commit("g", "t", MANY - 1, 77)
    driver.advance(10)
    assert driver.offsets_of("g") == {("t", MANY - 1): 77}


def test_offsets_of_an_empty_shard_take_little_memory() -> None:
    """A thousand groups with ten offsets each: measured, so that a change that doubles it is noticed."""
    import tracemalloc

    driver = OffsetsDriver("t", settings=SETTINGS)
    shard: OffsetsShard = driver.shard
    value = offset_value(123_456, 3, "", driver.now.wall_ms, -1)
    tracemalloc.start()
    offset = 0
    for number in range(1_000):
        for partition in range(10):
            shard.replay(ReplayedRecord(offset, 0, offset_key(f"group-{number}", "orders", partition), value))
            offset += 1
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shard.offsets.count == 10_000
    assert used < 10_000 * 500


def test_offsets_of_a_topic_that_is_gone_are_looked_for_until_the_log_has_taken_it() -> None:
    driver = committed("t", "u")
    driver.topics.there.pop("t")
    assert driver.shard.offsets.topics_deleted(["t"], driver.now).records  # which the log refuses
    assert driver.offsets_of("g") == {("t", 0): 5, ("u", 0): 5}
    driver.advance(2.0)
    assert driver.offsets_of("g") == {("u", 0): 5}
    written = len(driver.log)
    driver.advance(10.0)
    assert len(driver.log) == written


def test_topics_that_go_together_are_looked_for_once() -> None:
    """Not once per topic: both may be very many."""
    driver = OffsetsDriver("t", settings=SETTINGS)
    for number in range(50):
        driver.commit(f"g{number}", "t", 0, 5)
    table = driver.shard.offsets._committed
    looks = 0
    of_group = table.of_group

    def counted(group_id: str) -> TopicOffsets:
        nonlocal looks
        looks += 1
        return of_group(group_id)

    table.of_group = counted  # type: ignore[method-assign]
    names = [f"gone{number}" for number in range(1_000)]
    driver.apply(driver.shard.offsets.topics_deleted(names, driver.now))
    assert looks == 50
