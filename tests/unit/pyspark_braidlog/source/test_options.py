"""Options as Spark's connector takes them: names, defaults, precedence, refusals."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_range_limit import AtOffsets, AtTime, AtTimes, Committed, Earliest, Latest
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.topics import Assign, Subscribe, SubscribePattern

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
BASE = {**SERVERS, "subscribe": "orders"}
ORDERS_0 = TopicPartition("orders", 0)


def refused(options: dict[str, str], kind: str = "batch") -> str:
    with pytest.raises(UserError) as raised:
        {"batch": ReadOptions.for_batch, "stream": ReadOptions.for_stream}[kind](options)
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


def test_defaults_of_a_batch() -> None:
    options = ReadOptions.for_batch(BASE)
    assert options == ReadOptions(
        client={"bootstrap.servers": "localhost:9092"},
        consumer_strategy=Subscribe(("orders",)),
        starting=Earliest(),
        ending=Latest(),
        max_offsets=None,
        min_offsets=None,
        max_delay_s=900.0,
        min_partitions=None,
        max_records_per_partition=None,
        fail_on_data_loss=True,
        include_headers=False,
        group_id=None,
        push_filters=False,
        starting_strategy="error",
    )


def test_a_stream_begins_at_the_latest_unless_it_is_told_otherwise() -> None:
    assert ReadOptions.for_stream(BASE).starting == Latest()
    assert ReadOptions.for_stream({**BASE, "startingOffsets": "earliest"}).starting == Earliest()
    assert ReadOptions.for_stream({**BASE, "startingTimestamp": "7"}).starting == AtTime(7, "startingTimestamp")


def test_names_have_no_case() -> None:
    # The keys that Spark hands over are in lower case.
    given = CaseInsensitiveDict({**SERVERS, "SubscribePattern": " or.* ", "MINPARTITIONS": "3"})
    options = ReadOptions.checked(given)
    assert options.consumer_strategy == SubscribePattern("or.*")
    assert options.min_partitions == 3


def test_values_that_programs_write_as_python_has_them() -> None:
    given: dict[str, Any] = {
        **BASE,
        "failOnDataLoss": False,
        "maxOffsetsPerTrigger": 100,
        "kafka.request.timeout.ms": 5000,
    }
    options = ReadOptions.for_stream(given)
    assert options == ReadOptions.for_stream({name: str(value).lower() for name, value in given.items()})
    assert (options.fail_on_data_loss, options.max_offsets) == (False, 100)
    given["groupId"] = None
    assert ReadOptions.for_stream(given) == options


def test_options_travel_to_tasks() -> None:
    options = ReadOptions.for_batch({**BASE, "startingOffsets": '{"orders": {"0": 5}}'})
    assert pickle.loads(pickle.dumps(options)) == options


class TestWhatToRead:
    def test_topics_are_named_with_commas(self) -> None:
        assert ReadOptions.checked({**SERVERS, "subscribe": " a, b,,a "}).consumer_strategy == Subscribe(("a", "b"))

    def test_partitions_are_named_in_json(self) -> None:
        consumer_strategy = ReadOptions.checked({**SERVERS, "assign": '{"a": [1, 0], "b": [2]}'}).consumer_strategy
        assert consumer_strategy == Assign((TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 2)))

    def test_one_way_of_three_has_to_be_chosen(self) -> None:
        assert "exactly one of the options subscribe, subscribePattern and assign" in refused(SERVERS)
        assert "subscribe and assign are given together" in refused({**BASE, "assign": '{"a": [0]}'})

    @pytest.mark.parametrize("name", ["subscribe", "subscribePattern", "assign"])
    def test_nothing_is_no_choice(self, name: str) -> None:
        assert name in refused({**SERVERS, name: " "})

    def test_servers_have_to_be_named(self) -> None:
        assert "kafka.bootstrap.servers is missing" in refused({"subscribe": "orders"})


EVERY_BOUND = {
    **BASE,
    "startingOffsets": '{"orders": {"0": 5}}',
    "startingOffsetsByTimestamp": '{"orders": {"0": 6}}',
    "startingTimestamp": "7",
    "endingOffsets": '{"orders": {"0": 15}}',
    "endingOffsetsByTimestamp": '{"orders": {"0": 16}}',
    "endingTimestamp": "17",
}


class TestPrecedence:
    def without(self, *words: str) -> ReadOptions:
        return ReadOptions.for_batch({name: value for name, value in EVERY_BOUND.items() if name not in words})

    def test_a_time_for_all_counts_first(self) -> None:
        options = self.without()
        assert options.starting == AtTime(7, "startingTimestamp")
        assert options.ending == AtTime(17, "endingTimestamp")

    def test_then_times_by_partition(self) -> None:
        options = self.without("startingTimestamp", "endingTimestamp")
        assert options.starting == AtTimes({ORDERS_0: 6}, "startingOffsetsByTimestamp")
        assert options.ending == AtTimes({ORDERS_0: 16}, "endingOffsetsByTimestamp")

    def test_then_offsets(self) -> None:
        times = ("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp")
        options = self.without(*times)
        assert options.starting == AtOffsets({ORDERS_0: 5}, "startingOffsets")
        assert options.ending == AtOffsets({ORDERS_0: 15}, "endingOffsets")


class TestRefusals:
    def test_a_batch_neither_begins_at_the_end_nor_ends_at_the_beginning(self) -> None:
        assert "can't be latest in a batch" in refused({**BASE, "startingOffsets": " Latest"})
        assert "can't be earliest in a batch" in refused({**BASE, "endingOffsets": "EARLIEST"})
        latest = refused({**BASE, "startingOffsets": '{"orders": {"0": 3, "1": -1}}'})
        assert "startingOffsets for orders-1 can't be latest (-1)" in latest
        earliest = refused({**BASE, "endingOffsets": '{"orders": {"0": -2}}'})
        assert "endingOffsets for orders-0 can't be earliest (-2)" in earliest

    def test_a_stream_may_begin_anywhere(self) -> None:
        ReadOptions.for_stream({**BASE, "startingOffsets": "latest"})
        ReadOptions.for_stream({**BASE, "startingOffsets": '{"orders": {"0": -1}}'})

    @pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
    def test_a_stream_has_no_end(self, name: str) -> None:
        assert f"{name} is not valid in a streaming query" in refused({**BASE, name: "latest"}, "stream")

    def test_start_and_end_name_the_same_partitions_in_order(self) -> None:
        start = {"startingOffsets": '{"orders": {"0": 5, "1": 0}}'}
        assert "orders-1 is in one" in refused({**BASE, **start, "endingOffsets": '{"orders": {"0": 9}}'})
        after = refused({**BASE, **start, "endingOffsets": '{"orders": {"0": 4, "1": 1}}'})
        assert "startingOffsets of orders-0 is 5, after endingOffsets, which is 4" in after
        ReadOptions.for_batch({**BASE, **start, "endingOffsets": '{"orders": {"0": -1, "1": 0}}'})
        times = {
            "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
            "endingOffsetsByTimestamp": '{"orders": {"0": 4}}',
        }
        assert "is 5, after" in refused({**BASE, **times})

    @pytest.mark.parametrize(
        "name",
        ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
    )
    def test_settings_that_spark_decides(self, name: str) -> None:
        assert f"kafka.{name} is not supported: " in refused({**BASE, f"kafka.{name}": "x"})

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("minPartitions", "0"),
            ("minPartitions", "many"),
            ("minPartitions", str(2**31)),
            ("maxRecordsPerPartition", "-1"),
            ("maxOffsetsPerTrigger", "1.5"),
            ("failOnDataLoss", "yes"),
            ("includeHeaders", ""),
            ("maxTriggerDelay", "soon"),
            ("startingTimestamp", "yesterday"),
            ("startingTimestamp", "-1"),
            ("startingOffsets", "first"),
            ("startingOffsetsByTimestampStrategy", "earliest"),
            ("pushFilters", "1"),
        ],
    )
    def test_values_that_cannot_be(self, name: str, text: str) -> None:
        assert f"option {name}={text!r}" in refused({**BASE, name: text})

    def test_the_least_of_a_batch_is_not_more_than_its_most(self) -> None:
        limits = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}
        assert "minOffsetsPerTrigger=10 is higher than maxOffsetsPerTrigger=9" in refused({**BASE, **limits}, "stream")
        ReadOptions.for_stream({**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "9"})

    def test_a_setting_with_a_value_that_it_cannot_have(self) -> None:
        assert "isolation.level" in refused({**BASE, "kafka.isolation.level": "read_everything"})


class TestGroup:
    def test_either_option_names_it(self) -> None:
        assert ReadOptions.for_stream({**BASE, "groupId": "shop"}).group_id == "shop"
        options = ReadOptions.for_stream({**BASE, "kafka.group.id": "shop", "groupIdPrefix": "p"})
        assert options.group_id == "shop"

    def test_not_both_differently(self) -> None:
        sentence = refused({**BASE, "groupId": "shop", "kafka.group.id": "office"}, "stream")
        assert "name two groups" in sentence


def test_secrets_stay_out_of_refusals() -> None:
    settings = {"kafka.sasl.password": "hunter2", "kafka.sasl.mechanism": "PLAIN", "kafka.isolation.level": "x"}
    assert "hunter2" not in refused({**BASE, **settings})
    options = ReadOptions.for_batch({**BASE, "kafka.sasl.password": "hunter2", "kafka.sasl.mechanism": "PLAIN"})
    assert "hunter2" not in repr(options)


class TestCommittedStarts:
    START = {**BASE, "startingOffsets": "committed"}  # noqa: RUF012

    def test_of_the_queries_group_or_another(self) -> None:
        for kind in (ReadOptions.for_batch, ReadOptions.for_stream):
            assert kind({**self.START, "groupId": "g"}).starting == Committed("g", "error")
            assert kind({**self.START, "kafka.group.id": "g"}).starting == Committed("g", "error")
            more = {"startingGroupId": "other", "startingOffsetsFallback": "EARLIEST"}
            found = kind({**self.START, "groupId": "g", **more})
            assert (found.starting, found.group_id) == (Committed("other", "earliest"), "g")

    def test_what_cannot_be(self) -> None:
        assert "say which with groupId" in refused(self.START)
        given = {**self.START, "groupId": "g"}
        assert "is neither error nor earliest nor latest" in refused({**given, "startingOffsetsFallback": "none"})
        assert "can't be latest in a batch" in refused({**given, "startingOffsetsFallback": "latest"})
        late = ReadOptions.for_stream({**given, "startingOffsetsFallback": "latest"})
        assert late.starting == Committed("g", "latest")
        others = ({"startingOffsets": "earliest"}, {"startingTimestamp": "5", "startingOffsets": "committed"}, {})
        for name in ("startingGroupId", "startingOffsetsFallback"):
            for start in others:
                reported = refused({**BASE, **start, name: "latest"})
                assert f"option {name} goes with startingOffsets=committed" in reported
        assert "is neither earliest nor latest nor JSON" in refused({**BASE, "endingOffsets": "committed"})
        assert "nor committed nor JSON" in refused({**BASE, "startingOffsets": "comitted"})
        assert "did you mean startingGroupId" in refused({**given, "startingGroupid_": "x"})
