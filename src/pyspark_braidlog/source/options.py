"""The options of a read, checked: names, defaults, precedence and refusals of Spark's own Kafka connector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final, Literal, TypeVar

from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.errors import UserError
from pyspark_braidlog.client_settings import PREFIX, client_settings
from pyspark_braidlog.source import option_parsing
from pyspark_braidlog.source.offset_range_limit import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Committed,
    Earliest,
    Fallback,
    Latest,
    OffsetRangeLimit,
)
from pyspark_braidlog.source.topics import Assign, ConsumerStrategy, Subscribe, SubscribePattern, compiled

# Of Spark's connector.
_CONNECTOR: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)
# Of its tuning: accepted, and without a meaning here.
_WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_OWN: Final = ("groupId", "pushFilters", "startingGroupId", "startingOffsetsFallback", "maxBytesPerTrigger")
# Of our sink, and what Spark hands down to every source: none of our business, and no misspelling.
_OTHERS: Final = ("topic", "delivery", "path", "checkpointLocation", "queryName", "header", "mode")
_KNOWN: Final = {name.lower(): name for name in (*_CONNECTOR, *_OWN, *_WITHOUT_EFFECT, *_OTHERS)}
_SUGGESTED: Final = {name.lower(): name for name in (*_CONNECTOR, *_OWN)}
_ALIKE: Final = 0.85
Strategy = Literal["error", "latest"]
Value = TypeVar("Value")

_DECODE: Final = "come as bytes; decode them with functions of the DataFrame"
_UNSUPPORTED: Final = {
    "auto.offset.reset": "where to begin is said by startingOffsets, and later by the checkpoint",
    "key.deserializer": f"keys {_DECODE}",
    "value.deserializer": f"values {_DECODE}",
    "enable.auto.commit": "Spark keeps the offsets; with the option groupId they are committed after each batch",
    "interceptor.classes": "interceptors could change records, so that a batch could not be read again as it was",
}
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_DEFAULT_DELAY_S: Final = 15 * 60.0
# A start and an end are said by one of three options; the first that is given counts.
_START: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_END: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


def check_spelling(names: Iterable[str]) -> None:
    """Unknown options are ignored, as in Spark, unless the name is likely a misspelling of a known one."""
    for name in names:
        lower = name.lower()
        if lower in _KNOWN or lower.startswith(PREFIX):
            continue
        if lower == "bootstrap.servers":
            raise _unknown(name, "kafka.bootstrap.servers")
        close = get_close_matches(lower, _SUGGESTED, n=1, cutoff=_ALIKE)
        if close:
            raise _unknown(name, _SUGGESTED[close[0]])


def _unknown(name: str, meant: str) -> UserError:
    return UserError(f"there is no option {name}; did you mean {meant}?")


@dataclass(frozen=True)
class ReadOptions:
    """What a query reads, and how; docs/spark/source.md has the options one by one."""

    # The `kafka.*` options without their prefix: settings of a consumer, secrets among them.
    client: dict[str, str] = field(repr=False)
    consumer_strategy: ConsumerStrategy
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = _DEFAULT_DELAY_S
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    # The group that progress is committed to, for all to see; none commits nothing.
    group_id: str | None = None
    push_filters: bool = False
    # What to do where no record is as late as the start asked for.
    starting_strategy: Strategy = "error"

    @classmethod
    def checked(cls, options: Mapping[str, str]) -> ReadOptions:
        """What batches and streams share; everything is parsed, so that mistakes show before a query runs."""
        try:
            return cls._parsed(_Given(options))
        except UserError as problem:
            # Spark shows the traceback above the sentence: the shorter it is, the sooner that is read.
            raise problem.with_traceback(None) from None

    @classmethod
    def _parsed(cls, given: _Given) -> ReadOptions:
        check_spelling(given.names())
        client = client_settings(given.values, CONSUMER, _UNSUPPORTED)
        # Raises for a value that a setting cannot have.
        Settings.of(CONSUMER, client)
        group_id = _group_id(given, client)
        found = cls(
            client=client,
            consumer_strategy=_consumer_strategy(given),
            starting=_starting(given, group_id),
            ending=_bound(given, _END, Latest()),
            max_offsets=given.read("maxOffsetsPerTrigger", option_parsing.positive),
            max_bytes=given.read("maxBytesPerTrigger", option_parsing.byte_size),
            min_offsets=given.read("minOffsetsPerTrigger", option_parsing.positive),
            max_delay_s=given.read("maxTriggerDelay", option_parsing.seconds, _DEFAULT_DELAY_S),
            min_partitions=given.read("minPartitions", option_parsing.positive_int),
            max_records_per_partition=given.read("maxRecordsPerPartition", option_parsing.positive),
            fail_on_data_loss=given.read("failOnDataLoss", option_parsing.flag, True),
            include_headers=given.read("includeHeaders", option_parsing.flag, False),
            group_id=group_id,
            push_filters=given.read("pushFilters", option_parsing.flag, False),
            starting_strategy=given.read("startingOffsetsByTimestampStrategy", _strategy, "error"),
        )
        if found.min_offsets and found.max_offsets and found.min_offsets > found.max_offsets:
            raise UserError(
                f"option minOffsetsPerTrigger={found.min_offsets} is higher than "
                f"maxOffsetsPerTrigger={found.max_offsets}; lower one or raise the other"
            )
        return found

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> ReadOptions:
        """Begins with the earliest record by default; limits of triggers have no effect."""
        found = cls.checked(options)
        if isinstance(found.starting, Latest):
            raise UserError("option startingOffsets can't be latest in a batch query: there would be nothing to read")
        if isinstance(found.ending, Earliest):
            raise UserError("option endingOffsets can't be earliest in a batch query: there would be nothing to read")
        if isinstance(found.starting, Committed) and found.starting.fallback == "latest":
            raise UserError("option startingOffsetsFallback can't be latest in a batch query; use earliest or error")
        _refuse(found.starting, LATEST, "latest (-1)")
        _refuse(found.ending, EARLIEST, "earliest (-2)")
        _check_order(found.starting, found.ending)
        return found

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> ReadOptions:
        """Begins after the latest record by default, and has no end."""
        given = _Given(options)
        for name in _END:
            if name in given:
                raise UserError(f"option {name} is not valid in a streaming query, which has no end; read a batch")
        found = cls.checked(options)
        return found if any(name in given for name in _START) else replace(found, starting=Latest())


class _Given:
    """The options that were given, whatever the case of their names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): _text(value) for name, value in options.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.values

    def names(self) -> list[str]:
        return list(self.values)

    def text(self, name: str) -> str:
        return self.values[name.lower()]

    def read(self, name: str, parse: Callable[[str, str], Value], default: Value | None = None) -> Value:
        return parse(name, self.text(name)) if name in self else default  # type: ignore[return-value]


def _text(value: object) -> str:
    """Programs hand over numbers and flags too, and Spark makes text of them in this way."""
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _consumer_strategy(given: _Given) -> ConsumerStrategy:
    named = [name for name in _CHOICES if name in given]
    if len(named) != 1:
        what = f"{' and '.join(named)} are given together" if named else "nothing says what to read"
        raise UserError(f"{what}; give exactly one of the options subscribe, subscribePattern and assign")
    (name,) = named
    text = given.text(name)
    if name == "subscribe":
        return Subscribe(option_parsing.names(name, text))
    if name == "assign":
        return Assign(option_parsing.partitions(name, text))
    if not text.strip():
        raise UserError("option subscribePattern is empty; give a regular expression")
    compiled(text.strip())
    return SubscribePattern(text.strip())


def _starting(given: _Given, group_id: str | None) -> OffsetRangeLimit:
    is_committed = "startingOffsets" in given and given.text("startingOffsets").strip().lower() == "committed"
    fallback: Fallback = given.read("startingOffsetsFallback", _fallback, "error")
    if not is_committed or any(name in given for name in _START[:-1]):
        for name in ("startingGroupId", "startingOffsetsFallback"):
            if name in given:
                raise UserError(f"option {name} goes with startingOffsets=committed; leave it out, or begin there")
        return _bound(given, _START, Earliest())
    group = (given.text("startingGroupId").strip() if "startingGroupId" in given else "") or group_id
    if group is None:
        raise UserError(
            "option startingOffsets=committed is where a consumer group is: say which with groupId, or with "
            "startingGroupId where progress is not to be committed to it"
        )
    return Committed(group, fallback)


def _fallback(name: str, text: str) -> Fallback:
    word = text.strip().lower()
    if word in ("error", "earliest", "latest"):
        return word  # type: ignore[return-value]
    raise UserError(f"option {name}={text!r} is neither error nor earliest nor latest")


def _bound(given: _Given, options: tuple[str, str, str], default: OffsetRangeLimit) -> OffsetRangeLimit:
    at_time, by_timestamp, at_offsets = options
    if at_time in given:
        return AtTime(option_parsing.timestamp_ms(at_time, given.text(at_time)), at_time)
    if by_timestamp in given:
        return AtTimes(option_parsing.timestamps(by_timestamp, given.text(by_timestamp)), by_timestamp)
    if at_offsets not in given:
        return default
    text = given.text(at_offsets).strip()
    if text.lower() == "earliest":
        return Earliest()
    if text.lower() == "latest":
        return Latest()
    if not text.startswith("{"):
        words = "earliest nor latest nor committed" if options is _START else "earliest nor latest"
        raise UserError(f"option {at_offsets}={text!r} is neither {words} nor JSON with offsets")
    return AtOffsets(option_parsing.offsets(at_offsets, text), at_offsets)


def _strategy(name: str, text: str) -> Strategy:
    word = text.strip().lower()
    if word == "error":
        return "error"
    if word == "latest":
        return "latest"
    raise UserError(f"option {name}={text!r} is neither error nor latest")


def _group_id(given: _Given, client: Mapping[str, str]) -> str | None:
    named = given.text("groupId").strip() if "groupId" in given else ""
    theirs = client.get("group.id", "")
    if named and theirs and named != theirs:
        raise UserError(f"options groupId={named!r} and kafka.group.id={theirs!r} name two groups; give one of them")
    return named or theirs or None


def _refuse(bound: OffsetRangeLimit, offset: int, word: str) -> None:
    if isinstance(bound, AtOffsets):
        for where, asked in bound.offsets.items():
            if asked == offset:
                raise UserError(f"option {bound.option} for {where} can't be {word} in a batch query")


def _check_order(start: OffsetRangeLimit, end: OffsetRangeLimit) -> None:
    """What can be known of a start and an end before the cluster is asked."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        starts, ends = start.offsets, end.offsets
    elif isinstance(start, AtTimes) and isinstance(end, AtTimes):
        starts, ends = start.timestamps_ms, end.timestamps_ms
    else:
        return
    unmatched = sorted(starts.keys() ^ ends.keys())
    if unmatched:
        raise UserError(
            f"options {start.option} and {end.option} have to name the same partitions: {unmatched[0]} is in one"
        )
    for where, first in starts.items():
        # -1 and -2 stand for offsets that only the cluster knows.
        if first > ends[where] >= 0:
            raise UserError(f"{start.option} of {where} is {first}, after {end.option}, which is {ends[where]}")
