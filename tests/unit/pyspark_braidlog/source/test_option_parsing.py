from __future__ import annotations

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.source.options import ReadOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


BASE = {**SERVERS, "subscribe": "orders"}


def refused(options: dict[str, str], kind: str = "batch") -> str:
    with pytest.raises(UserError) as raised:
        {"batch": ReadOptions.for_batch, "stream": ReadOptions.for_stream}[kind](options)
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


class TestJson:
    """Of bad JSON the sentence says where the mistake is, and what is expected."""

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ('{"orders": {"0": 1,}}', "at column"),
            ('{"orders": {"0": 1}', "where it ends"),
            ('{"orders": [1]}', 'at "orders" there is [1]'),
            ('{"orders": {"first": 1}}', 'at "orders" there is "first" and not a partition'),
            ('{"orders": {"0": "1"}}', 'at "orders", "0" there is "1" and not an offset'),
            ('{"orders": {"0": 1.5}}', 'at "orders", "0" there is 1.5'),
            ('{"orders": {"0": true}}', 'at "orders", "0" there is true'),
            ('{"orders": {"0": -3}}', 'at "orders", "0" there is -3'),
            ('{"orders": {"0": 1, "0": 2}}', '"0" is there twice'),
            ('{"orders": {"0": 99999999999999999999}}', 'at "orders", "0" there is 999'),
            (f'{{"orders": {{"0": {"9" * 5000}}}}}', "a number that is too large or too deep a nesting"),
            (f'{{"orders": {{"{"9" * 5000}": 0}}}}', 'at "orders" there is "9999'),
            ('{"orders": ' * 5000, "a number that is too large or too deep a nesting"),
        ],
    )
    def test_offsets(self, text: str, where: str) -> None:
        sentence = refused({**BASE, "startingOffsets": text})
        assert where in sentence
        assert '{"topicA": {"0": 23, "1": -1}' in sentence

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ("orders", "expecting value at column 1, before 'orders'"),
            ('["orders"]', 'it is ["orders"] and not an object'),
            ('{"orders": 0}', 'at "orders" there is 0 and not a list'),
            ('{"orders": [-1]}', 'at "orders" there is -1 and not a partition'),
            ('{"orders": []}', "names no partition"),
        ],
    )
    def test_partitions(self, text: str, where: str) -> None:
        assert where in refused({**SERVERS, "assign": text})

    def test_times_are_not_negative(self) -> None:
        text = '{"orders": {"0": -1}}'
        assert "and not a time" in refused({**BASE, "startingOffsetsByTimestamp": text})

    def test_lines_are_counted(self) -> None:
        assert "line 2, column 1" in refused({**BASE, "startingOffsets": '{"orders":\n}'})


class TestSpelling:
    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("startingOffset", "startingOffsets"),
            ("subscribes", "subscribe"),
            ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
            ("failsOnDataLoss", "failOnDataLoss"),
            ("bootstrap.servers", "kafka.bootstrap.servers"),
            ("kafka.isolation.levl", "kafka.isolation.level"),
            ("kafka.security.protocoll", "kafka.security.protocol"),
        ],
    )
    def test_nearly_the_name_of_an_option(self, name: str, meant: str) -> None:
        assert f"did you mean {meant}?" in refused({**BASE, name: "x"})

    @pytest.mark.parametrize(
        "name",
        [
            "path",
            "checkpointLocation",
            "something.else",
            "topic",
            "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
            "kafkaConsumer.pollTimeoutMs",
            "groupIdPrefix",
            "kafka.max.poll.records",
            "kafka.linger.ms",
            "kafka.sasl.login.retry.backoff.ms",
            "kafka.ssl.keymanager.algorithm",
        ],
    )
    def test_what_is_passed_over(self, name: str) -> None:
        ReadOptions.for_batch({**BASE, name: "1"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900.0), ("2min", 120.0), ("10s", 10.0), ("500ms", 0.5), ("250", 0.25), ("1h", 3600.0), ("1d", 86400.0)],
)
def test_durations_are_written_as_in_spark(text: str, seconds: float) -> None:
    assert ReadOptions.for_stream({**BASE, "maxTriggerDelay": text}).max_delay_s == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("100b", 100), ("64m", 64 << 20), (" 1 GB ", 1 << 30), ("10kb", 10240), ("2T", 2 << 40)],
)
def test_sizes_are_written_as_in_spark(text: str, size: int) -> None:
    assert ReadOptions.for_stream({**BASE, "maxBytesPerTrigger": text}).max_bytes == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "10x", "m", "9999999999999999999p"])
def test_what_is_no_size(text: str) -> None:
    assert "is no size" in refused({**BASE, "maxBytesPerTrigger": text})
